"""Keeps the values of small tensors of integers and booleans in a run without data.

Models look at masks and positions to decide what to do. Those are made without the model's weights, so their values can be
known where nothing else has any.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from kernelllm_judge.core.dispatch_mode import DispatchMode

MOST = 1 << 24
"""Elements of a tensor whose values are kept."""


class KnownIntegers(DispatchMode):
    """Computes tensors of integers and booleans on the CPU beside the device ``meta``, as far as they depend on no others."""

    def __init__(self) -> None:
        """Starts without values; those of one block are kept for the next."""
        super().__init__()
        self._values: Any = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation, and the same on known values."""
        kwargs = kwargs or {}
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.is_meta]
        known = all(tensor in self._values for tensor in given)
        try:
            made = func(*args, **kwargs)
        except (RuntimeError, NotImplementedError):  # it, or its shape, depends on values
            if not (known and given):
                raise
            value = self._on_values(func, args, kwargs)
            if torch.device(kwargs.get("device") or "meta").type != "meta":
                return value  # a copy on the CPU
            made = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), value)
            self._learn(made, value)
            return made
        tensors = [leaf for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor) and leaf.is_meta]
        if known and tensors and all(map(_is_small_and_whole, tensors)) and "empty" not in str(func):
            self._learn(made, self._on_values(func, args, kwargs))
        elif func._schema.is_mutable:
            self._forget(given)
        return made

    def value(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor's values on the CPU if they are known, else the tensor."""
        return self._values.get(tensor, tensor)  # type: ignore[no-any-return]  # of a mapping of tensors

    def _on_values(self, func: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = tree_map_only(
            torch.Tensor, lambda tensor: self._values.get(tensor, tensor), (args, kwargs)
        )
        return func(*args, **({**kwargs, "device": torch.device("cpu")} if "device" in kwargs else kwargs))

    def _learn(self, made: Any, value: Any) -> None:
        for shape, one in zip(tree_leaves(made), tree_leaves(value), strict=True):
            if isinstance(shape, torch.Tensor) and _is_small_and_whole(one):
                self._values[shape] = one

    def _forget(self, changed: list[torch.Tensor]) -> None:
        """Forgets tensors that unknown values may be written to, with all that share their memory."""
        storages = {tensor.untyped_storage()._cdata for tensor in changed}
        for tensor in list(self._values.keys()):
            if tensor.untyped_storage()._cdata in storages:
                del self._values[tensor]


def _is_small_and_whole(tensor: torch.Tensor) -> bool:
    return tensor.numel() <= MOST and not tensor.is_floating_point() and not tensor.is_complex()

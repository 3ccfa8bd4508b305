"""Finds out how many bytes an original's call takes, by a run without data."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_judge.core.records import Case
from kernelllm_judge.memory import CallBytes
from kernelllm_judge.target.work import empty_inputs
from kernelllm_judge.truth.prepared import bytes_of, tensors_of_call
from kernelllm_judge.truth.probes import Subject

SMALL = 1 << 27
"""Elements; where no product of an input with another tensor can have more, calls are not tried."""


def call_bytes(subject: Subject, case: Case, module: nn.Module) -> CallBytes:
    """Returns the bytes of one call at the case's own sizes.

    Where the original does not run without data, its outputs are taken to be as large as its inputs.

    Args:
        module: the original, built for the case. Left unchanged.
    """
    inputs = empty_inputs(case, case.sizes)
    size, state = bytes_of(_tensors(inputs.values())), bytes_of(tensors_of_call(module, {}, ()))
    wider = max(
        (
            torch.float64.itemsize // t.itemsize
            for t in tensors_of_call(module, inputs, ())
            if t.is_floating_point()
        ),
        default=CallBytes.wider,
    )
    unknown = CallBytes(size, state, size, size, size, True, wider)
    widest, any_tensor = (
        max((t.numel() for t in tensors), default=1)
        for tensors in (_tensors(inputs.values()), tensors_of_call(module, inputs, ()))
    )
    if widest * any_tensor <= SMALL:
        # A run without data might leave such tensors in the user's caches.
        return unknown
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    meta = {name: tensor.detach().to("meta") for name, tensor in held.items()}
    try:
        with torch.no_grad(), torch.device("meta"), _Peak([*inputs.values(), *meta.values()]) as call:
            outputs = _tensors(tree_leaves(functional_call(module, meta, (), nested(inputs))))
    except (Exception, SystemExit):  # much of what runs on data does not run without
        return unknown
    drawn = size
    try:
        with _Peak([]) as draw:
            subject.inputs(case, 0, device="meta")
        drawn = max(size, draw.peak)
    except (Exception, SystemExit):
        pass
    counts = {leaf.shape[0] if leaf.dim() else 0 for leaf in outputs}
    rows = counts.pop() if len(counts) == 1 else 0
    cut = [t for t in _tensors(inputs.values()) if t.dim() and len(t) == rows]
    written = bytes_of(outputs)
    return CallBytes(size, state, written, max(call.peak, written), drawn, bool(cut) and rows > 1, wider)


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


class _Peak(DispatchMode):
    """Counts the bytes of tensors that are made and alive, other than the given ones."""

    def __init__(self, given: Iterable[Any]) -> None:
        super().__init__()
        self.peak = 0
        self._now = 0
        self._alive = {tensor.untyped_storage()._cdata: 0 for tensor in _tensors(given)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and counts."""
        made = func(*args, **(kwargs or {}))
        # A loss holds the errors of all elements before it has their mean.
        is_loss = any(part in func.__name__ for part in ("loss", "cross_entropy"))
        inner = max((t.nbytes for t in _tensors(args)), default=0) if is_loss else 0
        for leaf in _tensors(tree_leaves(made)):
            storage = leaf.untyped_storage()
            if storage._cdata not in self._alive:
                self._alive[storage._cdata] = size = storage.nbytes()
                self._now += size
                weakref.finalize(storage, self._freed, storage._cdata)
        self.peak = max(self.peak, self._now + inner)
        return made

    def _freed(self, key: int) -> None:
        self._now -= self._alive.pop(key, 0)

"""Tensors that a module makes of a few Python numbers in ``forward``, such as ``torch.tensor(self.limit)``.

Traced as they are, they become tensors of the graph with values of their own, which no kernel module holds. Made by
operations instead, their numbers become literals of the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

MOST = 8
"""Numbers in a tensor that kernels hold, as in Inductor."""

_MAKERS = (torch.tensor, torch.as_tensor, torch.asarray)


class NumbersAsOperations(TorchFunctionMode):
    """Makes tensors of at most ``MOST`` Python numbers by ``torch.full`` and ``torch.stack``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls a function of torch, or makes its result."""
        kwargs = kwargs or {}
        simple = kwargs.keys() <= {"dtype", "device"}
        if func in _MAKERS and len(args) == 1 and simple:
            made = _tensor(args[0], kwargs.get("dtype") or _dtype(args[0]), kwargs.get("device"))
        elif func is torch.Tensor.new_tensor and len(args) == 2 and simple:
            x, data = args
            made = _tensor(data, kwargs.get("dtype") or x.dtype, kwargs.get("device") or x.device)
        elif func is torch.Tensor.__setitem__ and _is_number(args[2]):
            x, index, value = args
            return func(x, index, torch.full((), value, dtype=x.dtype, device=x.device))
        else:
            made = None
        return func(*args, **kwargs) if made is None else made


def _tensor(data: Any, dtype: torch.dtype, device: Any) -> torch.Tensor | None:
    """Returns a tensor of numbers or nested lists of them; None if there are too many, or anything else is among them."""
    numbers = list(_numbers(data))
    if not 1 <= len(numbers) <= MOST or not all(map(_is_number, numbers)):
        return None
    try:
        return _made(data, dtype, device)
    except (RuntimeError, TypeError):  # lists of different lengths: PyTorch's own error is better
        return None


def _made(data: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    if isinstance(data, list | tuple):
        return torch.stack([_made(each, dtype, device) for each in data])
    return torch.full((), data, dtype=dtype, device=device)


def _numbers(data: Any) -> Iterator[Any]:
    if isinstance(data, list | tuple):
        for each in data:
            yield from _numbers(each)
    else:
        yield data


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | torch.SymInt | torch.SymFloat)


def _dtype(data: Any) -> torch.dtype:
    """Returns the dtype that PyTorch gives a tensor of these numbers."""
    numbers = list(_numbers(data))
    if all(isinstance(each, bool) for each in numbers):
        return torch.bool
    whole = all(isinstance(each, int | torch.SymInt) for each in numbers)
    return torch.int64 if whole else torch.get_default_dtype()

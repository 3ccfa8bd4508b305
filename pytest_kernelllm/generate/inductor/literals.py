"""Tensors that a module makes of a few Python numbers in ``forward``, such as ``torch.tensor(self.limit)``.

Traced as they are, they become tensors of the graph with values of their own, which no kernel module holds. Made by
operations instead, their numbers become literals of the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

MOST = 8
"""Numbers in a tensor that kernels hold, as in Inductor."""

_MAKERS = (torch.tensor, torch.as_tensor, torch.asarray)


class NumbersAsOperations(TorchFunctionMode):
    """Makes tensors of at most ``MOST`` Python numbers by ``torch.full`` and ``torch.stack``.

    The ``item`` of such a tensor is its number. Lists of numbers as an index are made in the same way.
    """

    def __init__(self) -> None:
        """Makes a mode that knows no tensor yet."""
        super().__init__()
        self._known = WeakTensorKeyDictionary()
        """Of each tensor made: its real counterpart, and the version in which they are equal."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls a function of torch, or makes its result."""
        kwargs = kwargs or {}
        simple = kwargs.keys() <= {"dtype", "device"}
        made = None
        if func in _MAKERS and len(args) == 1 and simple:
            made = self._tensor(args[0], kwargs.get("dtype") or _dtype(args[0]), kwargs.get("device"))
        elif func is torch.Tensor.new_tensor and len(args) == 2 and simple:
            x, data = args
            made = self._tensor(data, kwargs.get("dtype") or x.dtype, kwargs.get("device") or x.device)
        elif func is torch.Tensor.__getitem__:
            x, index = args
            args = x, _index(index, x.device)
        elif func is torch.Tensor.__setitem__:
            x, index, value = args
            if _is_number(value):
                value = torch.full((), value, dtype=x.dtype, device=x.device)
            args = x, _index(index, x.device), value
        elif func is torch.Tensor.item and args[0] in self._known:
            real, version = self._known[args[0]]
            if args[0]._version == version:  # not changed in place since
                return func(real)
        return func(*args, **kwargs) if made is None else made

    def _tensor(self, data: Any, dtype: torch.dtype, device: Any) -> torch.Tensor | None:
        made = _tensor(data, dtype, device)
        if made is not None and all(isinstance(each, int | float) for each in _numbers(data)):
            with _disable_current_modes():
                self._known[made] = torch.tensor(data, dtype=dtype), made._version
        return made


def _index(index: Any, device: torch.device) -> Any:
    """Returns an index with tensors in place of lists of whole numbers, of which PyTorch would make tensors itself."""
    if isinstance(index, tuple):
        return tuple(_index(each, device) for each in index)
    if isinstance(index, list) and all(type(each) is int for each in index):  # a nested one may mean a tuple
        made = _tensor(index, torch.int64, device)
        return index if made is None else made
    return index


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
    if any(isinstance(each, float) and hasattr(each, "dtype") for each in numbers):
        return torch.float64  # of NumPy, such as `np.sqrt(2)`
    if all(isinstance(each, bool) for each in numbers):
        return torch.bool
    whole = all(isinstance(each, int | torch.SymInt) for each in numbers)
    return torch.int64 if whole else torch.get_default_dtype()

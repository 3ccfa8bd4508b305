"""Detects quickly whether a pinned value is still what it was."""

from __future__ import annotations

import enum
import operator
import types
import weakref
from typing import Any

import torch
from torch import nn

from kernelllm_runtime.pins.functions import is_basic
from kernelllm_runtime.pins.objects import MISSING
from kernelllm_runtime.pins.texts import ATOMS, BY_REPR, Writer, refuse_gradients, tensor_text


class Unchanged:
    """Whether a value is still what it was. Tensors are compared by identity and version, not by their contents."""

    def __init__(self, value: Any, module: nn.Module) -> None:
        """Takes the value as it is now; neither the module nor tensors are kept alive."""
        self._module = weakref.ref(module)
        self._text, tensors = self._written(value)
        self._tensors = [(weakref.ref(each), self._state(each)) for each in tensors]
        self._kind, self._items = type(value), _settled_items(value)

    def __call__(self, value: Any) -> bool:
        """Returns whether ``value`` is equal to the first one, with the same tensors in it."""
        if self._items is not None and type(value) is self._kind:
            items = _items(value)
            if len(items) == len(self._items) and all(map(operator.is_, items, self._items)):
                return True
        text, tensors = self._written(value)
        return text == self._text and all(
            then() is now and state == self._state(now)
            for now, (then, state) in zip(tensors, self._tensors, strict=True)
        )

    def _written(self, value: Any) -> tuple[str, list[torch.Tensor]]:
        tensors: list[torch.Tensor] = []

        def number(tensor: torch.Tensor) -> str:
            refuse_gradients(tensor)
            tensors.append(tensor)
            return f"tensor {len(tensors)}"

        module = self._module()
        assert module is not None  # it is being called
        return Writer(module, number).shown(value), tensors

    @staticmethod
    def _state(tensor: torch.Tensor) -> tuple[Any, ...]:
        version = tensor_text(tensor) if tensor.is_inference() else tensor._version
        return tensor.data_ptr(), version, tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad


_IMMUTABLE = frozenset((bool, int, float, complex, str, bytes, type(None)))


def _items(value: Any) -> tuple[Any, ...]:
    return (*value, *value.values()) if isinstance(value, dict) else tuple(value)


def _settled_items(value: Any) -> tuple[Any, ...] | None:
    """Returns what a dictionary or list holds, as long as nothing in it can change; None for anything else."""
    if type(value) not in (dict, list):
        return None
    items = _items(value)
    return items if _IMMUTABLE.issuperset(map(type, items)) else None


def settled(value: Any) -> bool:
    """Whether a value cannot change as long as it is the same object."""
    if type(value) is tuple:
        return all(map(settled, value))
    if isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType | type)
    if isinstance(value, types.FunctionType):
        return is_basic(value.__globals__.get("__name__") or "") and not value.__closure__
    if isinstance(value, enum.Enum):
        return settled(value._value_)
    if isinstance(value, slice):
        return all(map(settled, (value.start, value.stop, value.step)))
    return type(value) in (*ATOMS, float, *BY_REPR) or value is MISSING

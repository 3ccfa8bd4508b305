"""What an object holds: its attributes, and what it would be pickled from."""

from __future__ import annotations

import copyreg
import enum
import types
from typing import Any

import torch
from torch import nn

_ITEMS = (list, tuple, dict, set, frozenset, str, bytes, int, float, complex)

INTERNAL = frozenset(vars(nn.Module())) | {"forward", "call_super_init", "dump_patches"}
"""Attributes of modules that ``nn.Module`` itself keeps."""
_HOOKS = ("_hooks", "_pre_hooks", "_with_kwargs", "_always_called")


class MISSING:
    """Stands for what does not exist. It is a class because Dynamo before torch 2.13 cannot compare objects."""


class Unpinnable(Exception):
    """A value cannot be compared; the text says what it is, as the end of a sentence."""


def qualified(thing: Any) -> str:
    """Returns the dotted name of a class or function, ``torch.…`` for those of torch that have no module."""
    return f"{getattr(thing, '__module__', None) or 'torch'}.{getattr(thing, '__qualname__', type(thing).__name__)}"


def is_plain_object(value: Any) -> bool:
    """Whether all of an object's state is in its attributes, so that each can be pinned apart from the others."""
    kind = type(value)
    if isinstance(value, (*_ITEMS, type, torch.Tensor, nn.Module, enum.Enum)) or kind is object:
        return False
    given = [getattr(kind, name) is not getattr(object, name) for name in ("__reduce__", "__reduce_ex__")]
    if any(given) and kind is not types.SimpleNamespace:
        return False
    return hasattr(value, "__dict__") or any("__slots__" in vars(base) for base in kind.__mro__)


def state_of(value: Any) -> dict[str, Any]:
    """Returns an object's own attributes, without a module's empty hooks."""
    found = dict(getattr(value, "__dict__", None) or {})
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            mangled = (
                f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and name[-2:] != "__" else name
            )
            if (
                name not in ("__dict__", "__weakref__")
                and (each := getattr(value, mangled, MISSING)) is not MISSING
            ):
                found[mangled] = each
    if isinstance(value, nn.Module):
        found = {k: v for k, v in found.items() if not k.endswith(_HOOKS) or v}
    return found


def reduced(value: Any) -> tuple[Any, ...]:
    """Returns the five parts that ``copy`` and ``pickle`` would make a value from.

    Raises:
        Unpinnable: they do not know how.
    """
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        parts = reduce(value) if reduce else value.__reduce_ex__(2)
        if type(value) is object or isinstance(parts, str):
            raise TypeError
    except Exception:
        raise Unpinnable(f"is {_a(type(value).__name__)}, whose value cannot be compared") from None
    maker, arguments, state, items, pairs = (*parts, None, None, None)[:5]
    return maker, arguments, state, list(items or ()), list(pairs or ())


def _a(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"

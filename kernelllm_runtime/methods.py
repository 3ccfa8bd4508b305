"""Detects instances with other code than their adopted class: methods of a subclass, or functions set on them."""

from __future__ import annotations

import inspect
import types

import torch
from torch import nn

_PLAIN = (types.FunctionType, staticmethod, classmethod, type)
"""Kinds of callables in a class that are the same object at every access, or bound to the instance."""
_UNUSED = frozenset(
    f"__{name}__"
    for name in (
        *("init", "new", "init_subclass", "del", "repr", "copy", "deepcopy", "getstate", "setstate"),
        *("reduce", "reduce_ex", "annotate", "annotate_func"),
    )
)
"""Special methods that no ``forward`` calls on its own module."""


def overridden(module: nn.Module, cls: type) -> str | None:
    """Returns how an instance differs from the adopted class in code that the original may call; None if it does not."""
    if differs := overridden_by(type(module), cls):
        return differs
    if torch.compiler.is_dynamo_compiling() and (name := untraceable(cls)):
        return f"torch.compile cannot tell whether `{name}` was replaced"
    for name in replaceable(cls):
        if replaced(module, name):
            return f"`{name}` was replaced on this instance"
    return None


def replaced(module: nn.Module, name: str) -> bool:
    """Returns whether an instance has a callable of its own instead of its class's."""
    if not torch.compiler.is_dynamo_compiling():
        return callable(vars(module).get(name))
    # Dynamo guards what is read in this way; before torch 2.13 it does not guard the names in ``vars(module)``.
    own, theirs = getattr(module, name), getattr(type(module), name)
    if isinstance(own, types.MethodType):  # of any instance: Dynamo takes each for the module's own
        return own.__func__ is not (theirs.__func__ if isinstance(theirs, types.MethodType) else theirs)
    return own is not theirs


def overridden_by(derived: type, cls: type) -> str | None:
    """Returns how a class differs from the adopted one in what the original may use; None if it does not."""
    mro = derived.__mro__
    if cls not in mro:
        return f"{derived.__qualname__} is not a {cls.__qualname__}"
    ours = _names(cls)
    for base in mro[: mro.index(cls)]:
        for name, value in vars(base).items():
            special = name.startswith("__")
            if name in ours and not (special and (name in _UNUSED or not _is_code(value))):
                return f"{base.__qualname__} overrides `{name}` of {cls.__qualname__}"
    return None


def replaceable(cls: type) -> tuple[str, ...]:
    """Returns the callables of the adopted class that an instance may replace; Python reads special methods on the class."""
    ours = sorted(name for name in _names(cls) if not name.startswith("__"))
    return tuple(name for name in ours if callable(getattr(cls, name, None)))


def untraceable(cls: type) -> str | None:
    """Returns one of those that code computes, or that is a new object at each access; None if there is none."""
    every = ((name, inspect.getattr_static(cls, name)) for name in replaceable(cls))
    return next((name for name, value in every if not isinstance(value, _PLAIN)), None)


def _names(cls: type) -> set[str]:
    bases = (base for base in cls.__mro__ if base is not nn.Module and base is not object)
    ours = {name for base in bases for name in vars(base)}
    return ours - {"forward", "extra_repr", "training", "dump_patches", "call_super_init"}


def _is_code(value: object) -> bool:
    return callable(value) and not isinstance(value, type)

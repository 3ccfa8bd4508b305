"""Whether an instance has other code than its adopted class: a subclass's methods, or functions set on it."""

from __future__ import annotations

import inspect
import types

from torch import nn


def overridden(module: nn.Module, cls: type) -> str | None:
    """How an instance differs from the adopted class in code that the original might call."""
    if overriding := overridden_by(type(module), cls):
        return overriding
    for name in methods(cls):
        if replaced(module, name):
            return f"`{name}` was replaced on this instance"
    return None


def replaced(module: nn.Module, name: str) -> bool:
    """Whether an instance has something else than its class's method."""
    # Dynamo guards what is read in this way, and not, before torch 2.13, which names are in ``vars(module)``.
    own, theirs = getattr(module, name), getattr(type(module), name)
    return not (own.__func__ is theirs if isinstance(own, types.MethodType) else own is theirs)


def overridden_by(derived: type, cls: type) -> str | None:
    """How a class differs from the adopted one in what the original might use; None if it does not."""
    mro = derived.__mro__
    if cls not in mro:
        return f"{derived.__qualname__} is no {cls.__qualname__}"
    ours = _names(cls)
    for base in mro[: mro.index(cls)]:
        for name in vars(base):
            if name in ours and not name.startswith("__"):
                return f"{base.__qualname__} overrides `{name}` of {cls.__qualname__}"
    return None


def methods(cls: type) -> tuple[str, ...]:
    """What of the adopted class an instance might have replaced."""
    found = ((name, inspect.getattr_static(cls, name, None)) for name in _names(cls))
    return tuple(sorted(name for name, value in found if isinstance(value, types.FunctionType)))


def _names(cls: type) -> set[str]:
    bases = (base for base in cls.__mro__ if base is not nn.Module and base is not object)
    ours = {name for base in bases for name in vars(base)}
    return ours - {"forward", "extra_repr", "training", "dump_patches", "call_super_init"}

"""What is imported by its name and what is written out, and how things of PyTorch are spelled."""

from __future__ import annotations

import builtins
import functools
import sys
import sysconfig
import typing
from collections.abc import Mapping
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

_ALWAYS_THERE = frozenset(("torch", "numpy", "triton")) | frozenset(sys.stdlib_module_names)
"""Packages that a module handed to a model may import: all others are written out."""

_SPELLINGS = (("torch", "torch"), ("torch.nn", "nn"), ("torch.nn.functional", "F"))
"""Where people look for things of PyTorch first, and what they call those modules."""


def is_importable(module: str | None) -> bool:
    """Whether the module of that name is imported where it is used, and never written out."""
    return bool(module) and str(module).partition(".")[0] in _ALWAYS_THERE


def is_ours(value: Any) -> bool:
    """Whether a value comes from this package, such as the marker."""
    value = value.func if isinstance(value, functools.partial) else value
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] == "pytest_kernelllm"


def is_library(value: Any) -> bool:
    """Whether a function or class was installed, and is neither PyTorch's, Python's nor the user's project's."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if is_importable(getattr(value, "__module__", None)) or not isinstance(file, str):
        return False
    return any(Path(file).is_relative_to(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))


def is_definition(value: Any) -> bool:
    """Whether a value is a class or a function, whatever wraps it."""
    return isinstance(value, type | FunctionType | BuiltinFunctionType) or hasattr(value, "__wrapped__")


def home(value: Any) -> str | None:
    """The module that defines a class or function."""
    found = getattr(value, "__module__", None)
    if found is None and isinstance(value, BuiltinFunctionType):
        return "torch" if getattr(torch, value.__name__, None) is value else None
    return found if isinstance(found, str) else None


def spelling(value: Any) -> tuple[str, str, str] | None:
    """``("torch.nn", "nn", "SiLU")`` for ``torch.nn.SiLU``: a module, its usual name and the attribute."""
    name = getattr(value, "__name__", "")
    for module, usual in _SPELLINGS:
        if getattr(sys.modules[module], name, _NOTHING) is value:
            return module, usual, name
    return None


def member_of(value: Any) -> tuple[str, str] | None:
    """``("collections", "OrderedDict")``: where a class or function can be imported from."""
    module, name = home(value) or "", getattr(value, "__name__", "")
    found = getattr(sys.modules.get(module), name, _NOTHING)
    return (module, name) if found is value else None


def follow(namespace: Mapping[str, Any], chain: tuple[str, ...]) -> Any:
    """What a dotted name stands for, or ``MISSING``."""
    value = namespace.get(chain[0], getattr(builtins, chain[0], MISSING))
    for part in chain[1:]:
        value = getattr(value, part, MISSING)
    return value


def is_annotation(value: Any, name: str) -> bool:
    """Whether a value can stay in an annotation: a type of PyTorch, Python or ``typing``."""
    if isinstance(value, type):
        return is_importable(value.__module__)
    return value is None or getattr(typing, name, _NOTHING) is value


def keeps_mode(module: nn.Module) -> bool:
    """Whether a module computes something else in training mode, as far as its parts tell."""
    other = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
    return any(isinstance(part, other) for part in module.modules())


_NOTHING = object()
MISSING = object()

"""Decides which values are imported and which are copied, and how PyTorch's names are spelled."""

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
"""Packages that a module in a prompt may import; code from all others is copied."""

_SPELLINGS = (("torch", "torch"), ("torch.nn", "nn"), ("torch.nn.functional", "F"))
"""The modules under which PyTorch's names are usually written, with their usual short names."""


def is_importable(module: str | None) -> bool:
    """Whether a module is imported instead of copied, by its name."""
    return bool(module) and str(module).partition(".")[0] in _ALWAYS_THERE


def is_ours(value: Any) -> bool:
    """Whether a value comes from this package or its runtime, such as the marker."""
    value = value.func if isinstance(value, functools.partial) else value
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] in (
        "kernelllm_runtime",
        "kernelllm_judge",
        "pytest_kernelllm",
    )


def is_library(value: Any) -> bool:
    """Whether a function or class is from an installed package other than PyTorch, NumPy and Triton."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if is_importable(getattr(value, "__module__", None)) or not isinstance(file, str):
        return False
    return any(Path(file).is_relative_to(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))


def is_definition(value: Any) -> bool:
    """Whether a value is a class or a function, whatever wraps it."""
    return isinstance(value, type | FunctionType | BuiltinFunctionType) or hasattr(value, "__wrapped__")


def home(value: Any) -> str | None:
    """Returns the name of the module that defines a class or function."""
    found = getattr(value, "__module__", None)
    if found is None and isinstance(value, BuiltinFunctionType):
        return "torch" if getattr(torch, value.__name__, None) is value else None
    return found if isinstance(found, str) else None


def spelling(value: Any) -> tuple[str, str, str] | None:
    """Returns ``("torch.nn", "nn", "SiLU")`` for ``torch.nn.SiLU``: the module, its usual name and the attribute."""
    name = getattr(value, "__name__", "")
    for module, usual in _SPELLINGS:
        if getattr(sys.modules[module], name, _NOTHING) is value:
            return module, usual, name
    return None


def member_of(value: Any) -> tuple[str, str] | None:
    """Returns the module and name from which a class or function can be imported, or None."""
    module, name = home(value) or "", getattr(value, "__name__", "")
    found = getattr(sys.modules.get(module), name, _NOTHING)
    return (module, name) if found is value else None


def follow(namespace: Mapping[str, Any], chain: tuple[str, ...]) -> Any:
    """Returns the value of a dotted name, or ``MISSING``."""
    value = namespace.get(chain[0], getattr(builtins, chain[0], MISSING))
    for part in chain[1:]:
        value = getattr(value, part, MISSING)
    return value


def is_annotation(value: Any, name: str) -> bool:
    """Whether a value can stay in an annotation: a type of PyTorch, Python or ``typing``."""
    if isinstance(value, type):
        return is_importable(value.__module__)
    return value is None or getattr(typing, name, _NOTHING) is value


def depends_on_mode(module: nn.Module) -> bool:
    """Whether a module has a dropout or batch norm layer, which compute something else in training mode."""
    other = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
    return any(isinstance(part, other) for part in module.modules())


_NOTHING = object()
MISSING = object()

"""Writes live values as expressions, and definitions as signatures."""

from __future__ import annotations

import enum
import functools
import inspect
import math
import textwrap
from collections.abc import Callable, Collection, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import nn

_MOST_ELEMENTS = 64
"""Tensors with more elements are not written."""


class Unwritable(Exception):
    """Raised if a value cannot be written; the message says what it is."""


def write(value: Any, refer: Callable[[Any], str]) -> str:
    """Writes an expression that evaluates to an equal value.

    Args:
        value: the value.
        refer: returns the name of a class or function.

    Raises:
        Unwritable: there is none.
    """
    kind = type(value)
    if kind is float and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or value is ... or kind in (bool, int, float, str, bytes, complex):
        return "..." if value is ... else repr(value)
    if isinstance(value, torch.dtype | torch.device):
        refer(torch.Tensor)  # imports torch
        return str(value) if isinstance(value, torch.dtype) else f"torch.device('{value}')"
    if isinstance(value, torch.Tensor) and value.numel() <= _MOST_ELEMENTS and not value.is_meta:
        refer(torch.Tensor)
        return f"torch.tensor({write(value.tolist(), refer)}, dtype={value.dtype})"
    if isinstance(value, enum.Enum):
        return f"{refer(kind)}.{value.name}"
    if isinstance(value, functools.partial):
        arguments = [value.func, *value.args]
        named = [f"{name}={write(each, refer)}" for name, each in value.keywords.items()]
        return f"{refer(functools.partial)}({', '.join([*(write(a, refer) for a in arguments), *named])})"
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return refer(value)
    if isinstance(value, nn.Module) and _takes_nothing(value):
        return f"{refer(kind)}()"
    return _container(value, refer)


def _takes_nothing(module: nn.Module) -> bool:
    """Whether a module is one such as ``nn.SiLU()``: without arguments, parts and parameters."""
    needed = [p for p in inspect.signature(type(module)).parameters.values() if p.default is p.empty]
    named = all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in needed)
    return named and repr(module) == f"{type(module).__name__}()" and not module.state_dict()


def _container(value: Any, refer: Callable[[Any], str]) -> str:
    kind = type(value)
    if kind in (tuple, torch.Size):
        return f"({''.join(f'{write(part, refer)}, ' for part in value).rstrip()})" if value else "()"
    if kind is list:
        return f"[{', '.join(write(part, refer) for part in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{write(k, refer)}: {write(v, refer)}" for k, v in value.items()) + "}"
    if kind in (set, frozenset):
        return f"{kind.__name__}({write(sorted(value, key=repr), refer)})"
    if kind in (range, slice):
        return repr(value)
    raise Unwritable(f"a {kind.__name__}")


def is_plain(value: Any) -> bool:
    """Whether a value consists of numbers, strings, None and nested containers of them."""
    if type(value) in (tuple, list, set, frozenset, torch.Size):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, complex, str, bytes)


def signature(name: str, value: Any, mentioned: Collection[str]) -> str:
    """Writes a definition without what it does: parameters of a function, or methods of a class."""
    if isinstance(value, type):
        module = issubclass(value, nn.Module)
        methods = [m for m in vars(value) if m in ("__init__", "forward", "__call__") or m in mentioned]
        shown = [_def(m, vars(value)[m]) for m in methods if isinstance(vars(value)[m], FunctionType)]
        body = textwrap.indent("\n".join(shown) or "...", "    ")
        return f"class {name}{'(torch.nn.Module)' if module else ''}:\n{body}"
    return _def(name, value) if callable(value) else f"{name} = ..."


def _def(name: str, function: Any) -> str:
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return f"def {name}(*args, **kwargs): ..."
    empty = inspect.Parameter.empty
    shown = [
        p.replace(annotation=empty, default=p.default if p.default is empty or is_plain(p.default) else ...)
        for p in found.parameters.values()
    ]
    text = str(found.replace(parameters=shown, return_annotation=empty))
    return f"def {name}{text.replace('=Ellipsis', '=...')}: ..."

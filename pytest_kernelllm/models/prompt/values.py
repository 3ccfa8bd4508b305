"""Writes live values as expressions, and definitions as signatures."""

from __future__ import annotations

import enum
import functools
import inspect
import math
import textwrap
from collections.abc import Callable, Collection, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

_MOST_ELEMENTS = 64
"""Tensors with more elements are not written."""


class Unwritable(Exception):
    """Raised if a value cannot be written; the message says what it is."""


def write(value: Any, refer: Callable[[Any], str]) -> str:
    """Writes an expression that evaluates to an equal value."""
    kind = type(value)
    if kind is float and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or value is ... or kind in (bool, int, float, str, bytes, complex, range, slice):
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
        arguments = [write(each, refer) for each in (value.func, *value.args)]
        arguments += [f"{name}={write(each, refer)}" for name, each in value.keywords.items()]
        return f"{refer(functools.partial)}({', '.join(arguments)})"
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return refer(value)
    if isinstance(value, nn.Module) and _takes_nothing(value):
        return f"{refer(kind)}()"
    if kind in (tuple, torch.Size):
        return f"({''.join(f'{write(part, refer)}, ' for part in value).rstrip()})" if value else "()"
    if kind is list:
        return f"[{', '.join(write(part, refer) for part in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{write(k, refer)}: {write(v, refer)}" for k, v in value.items()) + "}"
    if kind in (set, frozenset):
        return f"{kind.__name__}({write(sorted(value, key=repr), refer)})"
    raise Unwritable(f"a {kind.__name__}")


def _takes_nothing(module: nn.Module) -> bool:
    """Whether a module is one such as ``nn.SiLU()``: without arguments, parts and parameters."""
    needed = [p for p in inspect.signature(type(module)).parameters.values() if p.default is p.empty]
    named = all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in needed)
    return named and repr(module) == f"{type(module).__name__}()" and not module.state_dict()


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
    """Writes a definition without what it does: a function's parameters, or the methods of a class or functions of a module."""
    if isinstance(value, type | ModuleType):
        base = "(torch.nn.Module)" if isinstance(value, type) and issubclass(value, nn.Module) else ""
        names = {*mentioned, *(("__init__", "forward", "__call__") if isinstance(value, type) else ())}
        found = {each: vars(value)[each] for each in vars(value) if each in names}
        shown = [_def(each, one) for each, one in found.items() if isinstance(one, FunctionType)]
        return f"class {name}{base}:\n{textwrap.indent(chr(10).join(shown) or '...', '    ')}"
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

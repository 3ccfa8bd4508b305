"""Writes live values as expressions."""

from __future__ import annotations

import ast
import enum
import functools
import math
from collections.abc import Mapping
from types import MethodType
from typing import Any

import torch

from pytest_kernelllm.models.prompt.errors import NotPortable
from pytest_kernelllm.models.prompt.origins import is_definition

_MOST_ELEMENTS = 64
"""Tensors with more elements are not written."""


class ExpressionWriter:
    """Writes values as expressions; ``names`` holds what they refer to, under names that no source uses."""

    def __init__(self) -> None:
        """Starts without names."""
        self.names: dict[str, Any] = {}

    def refer(self, value: Any) -> ast.expr:
        """Returns a name that stands for a class, function or module and is resolved like a name in source."""
        for name, known in self.names.items():
            if known is value:
                return ast.Name(name, ast.Load())
        name = f"§{len(self.names)}"
        self.names[name] = value
        return ast.Name(name, ast.Load())

    def write(self, value: Any) -> ast.expr:
        """Writes an expression that evaluates to an equal value.

        Raises:
            NotPortable: there is none; the message names the value's type.
        """
        if value is None or value is Ellipsis or type(value) in (bool, int, str, bytes, complex):
            return ast.Constant(value)
        if type(value) is float:
            return _float(value)
        if isinstance(value, torch.dtype):
            return ast.Attribute(self.refer(torch), str(value).removeprefix("torch."), ast.Load())
        if isinstance(value, torch.device):
            return _call(ast.Attribute(self.refer(torch), "device", ast.Load()), ast.Constant(str(value)))
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, enum.Enum):
            return ast.Attribute(self.refer(type(value)), value.name, ast.Load())
        if isinstance(value, functools.partial):
            return self.call(functools.partial, (value.func, *value.args), value.keywords)
        if is_definition(value):
            if getattr(value, "__name__", None) == "<lambda>":
                raise NotPortable("a lambda")
            return self.refer(value)
        return self._container(value)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ast.Call:
        """Writes the call ``function(*args, **kwargs)``.

        Raises:
            NotPortable: an argument cannot be written.
        """
        keywords = [ast.keyword(name, self.write(value)) for name, value in kwargs.items()]
        return ast.Call(self.refer(function), [self.write(value) for value in args], keywords)

    def table(self, items: Mapping[Any, Any]) -> ast.Dict:
        """Writes a dict.

        Raises:
            NotPortable: a key or a value cannot be written.
        """
        return ast.Dict([self.write(key) for key in items], [self.write(value) for value in items.values()])

    def _container(self, value: Any) -> ast.expr:
        kind = type(value)
        if kind is tuple or kind is torch.Size:
            return ast.Tuple([self.write(part) for part in value], ast.Load())
        if kind is list:
            return ast.List([self.write(part) for part in value], ast.Load())
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return self.call(kind, (), value._asdict())
        if isinstance(value, dict):
            return self.table(value)
        if kind in (set, frozenset):
            shown = self.write(sorted(value, key=repr))
            return _call(self.refer(kind), shown)
        if kind in (range, slice):
            return _call(
                self.refer(kind), *(self.write(part) for part in (value.start, value.stop, value.step))
            )
        if isinstance(value, MethodType):
            raise NotPortable(f"the method {value.__func__.__qualname__}")
        raise NotPortable(f"a {kind.__name__}")

    def _tensor(self, value: torch.Tensor) -> ast.expr:
        if value.numel() > _MOST_ELEMENTS or value.is_meta:
            raise NotPortable(f"a tensor of {value.numel()} elements")
        make = ast.Attribute(self.refer(torch), "tensor", ast.Load())
        return ast.Call(make, [self.write(value.tolist())], [ast.keyword("dtype", self.write(value.dtype))])


def is_plain(value: Any) -> bool:
    """Whether a value consists of numbers, strings, None and nested containers of them."""
    if type(value) in (tuple, list, set, frozenset, torch.Size):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, float, complex, str, bytes)


def _float(value: float) -> ast.expr:
    if math.isfinite(value):
        return ast.Constant(value)
    return _call(ast.Name("float", ast.Load()), ast.Constant(str(value)))


def _call(function: ast.expr, *args: ast.expr) -> ast.Call:
    return ast.Call(function, list(args), [])

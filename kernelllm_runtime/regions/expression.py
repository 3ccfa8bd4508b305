"""Writes nodes of a captured graph as Python."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node
from torch.nn import functional

_INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.matmul: "@",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
_PREFIX = {operator.neg: "-", operator.invert: "~", operator.pos: "+"}


class Inexpressible(Exception):
    """Raised for what cannot be written as Python; the text is its name."""


def call_of(node: Node, names: Mapping[Node, str], device: str) -> str:
    """Returns the expression that computes a node.

    Args:
        names: the expression for each node that it takes.
        device: the expression for the device of the tensors.

    Raises:
        Inexpressible: its function or one of its arguments cannot be named.
    """

    def text(value: Any) -> str:
        return _value(value, names, device)

    if node.op == "call_method":
        receiver, *rest = node.args
        return f"{text(receiver)}.{node.target}({_arguments(rest, node.kwargs, text)})"
    if node.op != "call_function":
        raise Inexpressible(node.op)
    target: Any = node.target
    if target is operator.getitem:
        return f"{text(node.args[0])}[{_index(node.args[1], text)}]"
    if target is getattr and not node.kwargs:
        return f"{text(node.args[0])}.{node.args[1]}"
    if target in _INFIX and len(node.args) == 2 and not node.kwargs:
        return f"{text(node.args[0])} {_INFIX[target]} {text(node.args[1])}"
    if target in _PREFIX and len(node.args) == 1 and not node.kwargs:
        return f"{_PREFIX[target]}{text(node.args[0])}"
    return f"{name_of(target)}({_arguments(node.args, node.kwargs, text)})"


def name_of(target: Any) -> str:
    """Returns the dotted name of a function of torch.

    Raises:
        Inexpressible: there is none.
    """
    name = getattr(target, "__name__", "")
    for prefix, home in (
        ("torch.nn.functional", functional),
        ("torch", torch),
        ("torch.special", torch.special),
    ):
        if name and getattr(home, name, None) is target:
            return f"{prefix}.{name}"
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        return f"torch.ops.{target}"
    raise Inexpressible(name or repr(target))


def _arguments(args: Any, kwargs: Mapping[str, Any], text: Any) -> str:
    return ", ".join((*map(text, args), *(f"{name}={text(value)}" for name, value in kwargs.items())))


def _index(value: Any, text: Any) -> str:
    if isinstance(value, tuple) and value:
        inner = ", ".join(_index(each, text) for each in value)
        return f"{inner}," if len(value) == 1 else inner
    if isinstance(value, slice):
        start, stop = ("" if each is None else text(each) for each in (value.start, value.stop))
        return f"{start}:{stop}" + ("" if value.step is None else f":{text(value.step)}")
    return str(text(value))


def _value(value: Any, names: Mapping[Node, str], device: str) -> str:
    if isinstance(value, Node):
        return names[value]
    if value is Ellipsis:
        return "..."
    if isinstance(value, torch.device):
        return device
    if isinstance(value, torch.Size | tuple | list):
        inner = ", ".join(_value(each, names, device) for each in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, slice):
        return f"slice({', '.join(_value(each, names, device) for each in (value.start, value.stop, value.step))})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return str(value)
    raise Inexpressible(type(value).__name__)

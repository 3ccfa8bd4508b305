"""Evaluates expressions of a completion's constructor without executing them.

It knows literals, names of the case's constructor arguments, simple arithmetic and a few functions on plain
numbers. Everything else raises ``Unknown``.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelllm_judge.core.records import Scalar
from kernelllm_judge.core.syntax import call_name, dotted, is_literal

_LIMIT = 1 << 64
"""The largest magnitude of an integer, so that ``9 ** 9 ** 9`` does not take forever."""

_ITEMS = 4096
"""The most items of a sequence."""


class Unknown(Exception):
    """Raised if an expression cannot be evaluated here."""


@dataclass(frozen=True)
class KnownValue:
    """A value with the plain values of constructor arguments on which it depends."""

    value: Any
    """A scalar, a tuple of values, or (as an intermediate result only) an argument of any type."""
    read: tuple[Scalar, ...] = ()


UNKNOWN = KnownValue(object())
"""An argument that cannot be evaluated."""


def argument(value: Any) -> KnownValue:
    """Wraps a constructor argument of the case."""
    value = tuple(value) if isinstance(value, list) else value
    return KnownValue(value, tuple(_leaves(value)))


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal, where True is not 1."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def evaluate(node: ast.expr, names: Mapping[str, KnownValue]) -> KnownValue:
    """Evaluates an expression.

    Args:
        node: the expression.
        names: the known values by name; attributes of ``self`` under ``"self.<name>"``.

    Raises:
        Unknown: the expression is not a literal, a known name or simple arithmetic on them.
    """
    if isinstance(node, ast.Constant) and is_literal(node.value):
        return KnownValue(node.value)
    if isinstance(node, ast.Tuple | ast.List):
        return _apply(lambda *items: tuple(items), evaluate_all(node.elts, names))
    if isinstance(node, ast.Name | ast.Attribute):
        return _name(node, names)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _apply(_UNARY[type(node.op)], [evaluate(node.operand, names)])
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _apply(_BINARY[type(node.op)], [evaluate(node.left, names), evaluate(node.right, names)])
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        return _apply(
            _COMPARE[type(node.ops[0])], [evaluate(n, names) for n in (node.left, node.comparators[0])]
        )
    if isinstance(node, ast.IfExp):
        test = evaluate(node.test, names)
        chosen = evaluate(node.body if test.value else node.orelse, names)
        return KnownValue(chosen.value, test.read + chosen.read)
    if isinstance(node, ast.BoolOp):
        known = evaluate(node.values[0], names)
        for item in node.values[1:]:
            if bool(known.value) == isinstance(node.op, ast.Or):
                break
            following = evaluate(item, names)
            known = KnownValue(following.value, known.read + following.read)
        return known
    if isinstance(node, ast.Subscript):
        return _apply(_item, [evaluate(node.value, names), evaluate(node.slice, names)])
    if isinstance(node, ast.Call) and not node.keywords:
        return _call(node, names)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return _comprehension(node, names)
    raise Unknown


def evaluate_all(nodes: Sequence[ast.expr], names: Mapping[str, KnownValue]) -> list[KnownValue]:
    """Evaluates expressions of which some may be starred.

    Raises:
        Unknown: one of them cannot be evaluated.
    """
    found: list[KnownValue] = []
    for node in nodes:
        if not isinstance(node, ast.Starred):
            found.append(evaluate(node, names))
            continue
        known = evaluate(node.value, names)
        if not isinstance(known.value, tuple):
            raise Unknown
        found += [KnownValue(item, known.read) for item in known.value]
    return found


def _call(node: ast.Call, names: Mapping[str, KnownValue]) -> KnownValue:
    name = call_name(node)
    if name == "isinstance" and len(node.args) == 2:
        known = evaluate(node.args[0], names)
        return KnownValue(isinstance(known.value, _types(node.args[1])), known.read)
    if function := _FUNCTIONS.get(name):
        return _apply(function, evaluate_all(node.args, names))
    raise Unknown


def _types(node: ast.expr) -> tuple[type, ...]:
    """Returns the types of ``int`` or ``(int, float)``; a list counts as a tuple, as arguments are kept as tuples."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    try:
        return tuple(kind for part in parts for kind in _TYPES[dotted(part) or ""])
    except KeyError:
        raise Unknown from None


def _comprehension(node: ast.GeneratorExp | ast.ListComp, names: Mapping[str, KnownValue]) -> KnownValue:
    [loop] = node.generators if len(node.generators) == 1 else [None]
    if loop is None or loop.ifs or not isinstance(loop.target, ast.Name):
        raise Unknown
    items = evaluate(loop.iter, names)
    if not isinstance(items.value, tuple):
        raise Unknown
    name = loop.target.id
    made = [evaluate(node.elt, {**names, name: KnownValue(item, items.read)}) for item in items.value]
    return _apply(lambda *each: tuple(each), made) if made else KnownValue((), items.read)


def _name(node: ast.Name | ast.Attribute, names: Mapping[str, KnownValue]) -> KnownValue:
    name = dotted(node) or ""
    if name in names:
        return names[name]
    if name in _CONSTANTS:
        return KnownValue(_CONSTANTS[name])
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
        # A configuration object: only stored values are read, so that no property runs.
        owner = _name(node.value, names).value
        stored = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
        if not isinstance(owner, type) and node.attr in stored:
            return argument(stored[node.attr])
    raise Unknown


def _apply(function: Callable[..., Any], operands: Sequence[KnownValue]) -> KnownValue:
    values = [known.value for known in operands]
    if not all(is_literal(value) for value in values):
        raise Unknown
    try:
        value = function(*values)
    except (ArithmeticError, TypeError, ValueError, LookupError):
        raise Unknown from None
    if isinstance(value, int) and abs(value) > _LIMIT:
        raise Unknown
    return KnownValue(value, tuple(leaf for known in operands for leaf in known.read))


def _leaves(value: Any) -> list[Scalar]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value] if is_literal(value) else []


def _numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Restricts a function to numbers, because ``"a" * 10**9`` is arithmetic in Python."""

    def checked(*values: Any) -> Any:
        if not all(isinstance(value, int | float) for value in values):
            raise TypeError
        return function(*values)

    return checked


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > 64:
        raise ValueError
    value = base**exponent
    if isinstance(value, complex):
        raise ValueError
    return value


def _item(value: Any, index: Any) -> Any:
    if not (isinstance(value, tuple) and isinstance(index, int)):
        raise TypeError
    return value[index]


def _plus(a: Any, b: Any) -> Any:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a + b
    return _numbers(operator.add)(a, b)


def _times(a: Any, b: Any) -> Any:
    if isinstance(a, tuple) and isinstance(b, int) and len(a) * b <= _ITEMS:
        return a * b
    return _numbers(operator.mul)(a, b)


def _plain(items: Any) -> Any:
    if not (isinstance(items, tuple) and all(isinstance(item, int | float) for item in items)):
        raise TypeError
    return items


def _range(*bounds: int) -> tuple[int, ...]:
    found = range(*bounds)
    if len(found) > _ITEMS:
        raise ValueError
    return tuple(found)


def _next_power_of_2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


_CONSTANTS: Mapping[str, float] = {"math.pi": math.pi, "math.e": math.e, "math.inf": math.inf}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float,),
    "bool": (bool,),
    "str": (str,),
    "tuple": (tuple,),
    "list": (tuple,),
    "torch.Size": (),
    "numbers.Integral": (int,),
    "numbers.Number": (int, float),
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: _numbers(operator.neg),
    ast.UAdd: _numbers(operator.pos),
    ast.Not: operator.not_,
}
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _plus,
    ast.Sub: _numbers(operator.sub),
    ast.Mult: _times,
    ast.Div: _numbers(operator.truediv),
    ast.FloorDiv: _numbers(operator.floordiv),
    ast.Mod: _numbers(operator.mod),
    ast.Pow: _numbers(_power),
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "int": _numbers(int),
    "float": float,
    "bool": bool,
    "abs": _numbers(abs),
    "round": _numbers(round),
    "min": _numbers(min),
    "max": _numbers(max),
    "tuple": tuple,
    "list": tuple,
    "torch.Size": tuple,
    "len": len,
    "sum": lambda items: sum(_plain(items)),
    "math.prod": lambda items: math.prod(_plain(items)),
    "range": _range,
    "enumerate": lambda items: tuple(enumerate(items)),
    "zip": lambda *lists: tuple(zip(*lists, strict=False)),
    "math.sqrt": _numbers(math.sqrt),
    "math.log": _numbers(math.log),
    "math.log2": _numbers(math.log2),
    "math.exp": _numbers(math.exp),
    "math.pow": _numbers(math.pow),
    "math.ceil": _numbers(math.ceil),
    "math.floor": _numbers(math.floor),
    "triton.next_power_of_2": _numbers(_next_power_of_2),
    "triton.cdiv": _numbers(lambda a, b: -(-a // b)),
}

"""Decides conditions over what a completion's constructor sets."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from kernelllm_judge.core.syntax import dotted, is_literal


class Unknown(Exception):
    """Raised if an expression cannot be evaluated here."""


def evaluate(node: ast.expr, names: Mapping[str, object]) -> object:
    """Evaluates a comparison of literals and known values, or a combination of such.

    Args:
        node: the expression.
        names: the known values by dotted name, such as ``"self.causal"``.

    Raises:
        Unknown: the expression has another form, or fails.
    """
    match node:
        case ast.Constant(value=value) if is_literal(value):
            return value
        case ast.Name() | ast.Attribute() if (name := dotted(node)) in names:
            return names[name]
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(evaluate(item, names) for item in items)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not evaluate(operand, names)
        case ast.BoolOp(op=op, values=[*values, last]):
            for each in values:
                if bool(value := evaluate(each, names)) == isinstance(op, ast.Or):
                    return value
            return evaluate(last, names)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            try:
                return _COMPARE[type(op)](evaluate(left, names), evaluate(right, names))
            except TypeError:
                raise Unknown from None
    raise Unknown


_COMPARE: Mapping[type[ast.cmpop], Callable[..., object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}

"""Finds the constants of a kernel and puts them inline as plain numbers where that changes nothing."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from typing import Any

from kernelllm_judge.core.syntax import call_name

_KINDS = {"tl.float32": float, "tl.float64": float, "tl.int32": int, "tl.int64": int}


def full_number(value: ast.expr) -> ast.expr | None:
    """Returns the number in ``tl.full([1, 1], number, dtype)``, or None for another expression."""
    if not (isinstance(value, ast.Call) and call_name(value) == "tl.full" and len(value.args) == 3):
        return None
    shape, number, dtype = value.args
    if not isinstance(shape, ast.List) or {ast.unparse(size) for size in shape.elts} - {"1"}:
        return None
    if isinstance(number, ast.Name):  # a float attribute, which becomes a parameter of the kernel
        return number if ast.unparse(dtype) == "tl.float32" else None
    try:
        literal: Any = ast.literal_eval(number)
    except ValueError:
        return None
    fits = type(literal) is _KINDS.get(ast.unparse(dtype))
    return ast.Constant(literal) if fits else None


class InlineConstants(ast.NodeTransformer):
    """Puts constants inline where the other operand determines the dtype.

    Integers stay out of arithmetic: ``x * 8`` in int64 must not become int32.
    """

    def __init__(self, constants: Mapping[str, ast.expr]) -> None:
        """``constants``: the constants, by the name that each has in the kernel."""
        self.constants = constants

    def _value(self, node: ast.expr, other: ast.expr, *, integers: bool) -> ast.expr:
        if isinstance(node, ast.Name) and node.id in self.constants and not self._constant(other):
            value = self.constants[node.id]
            if integers or not (isinstance(value, ast.Constant) and isinstance(value.value, int)):
                return copy.deepcopy(value)
        return node

    def _constant(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in self.constants)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Called by ``ast.NodeTransformer``."""
        self.generic_visit(node)
        left, right = node.left, node.right
        node.left = self._value(left, right, integers=False)
        node.right = self._value(right, left, integers=False)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Called by ``ast.NodeTransformer``."""
        self.generic_visit(node)
        name = call_name(node)
        if name == "tl.where" and len(node.args) == 3:
            condition, yes, no = node.args
            node.args = [condition, self._value(yes, no, integers=True), self._value(no, yes, integers=True)]
        elif name in ("maximum", "minimum") and len(node.args) == 2:
            a, b = node.args
            node.args = [a, self._value(b, a, integers=True)]
            if self._constant(a) and not self._constant(b):  # the order does not matter
                node.args = [b, self._value(a, b, integers=True)]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Called by ``ast.NodeTransformer``."""
        self.generic_visit(node)
        if len(node.comparators) == 1:
            left, right = node.left, node.comparators[0]
            node.left = self._value(left, right, integers=True)
            node.comparators = [self._value(right, left, integers=True)]
        return node

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

    def _inline(self, nodes: list[ast.expr], *, integers: bool = True) -> list[ast.expr]:
        """Writes the constants among operands out, unless all are constants."""
        values = [self.constants.get(n.id, n) if isinstance(n, ast.Name) else n for n in nodes]
        if all(isinstance(value, ast.Constant) for value in values):
            return nodes
        return [
            copy.deepcopy(value) if integers or not isinstance(getattr(value, "value", None), int) else node
            for node, value in zip(nodes, values, strict=True)
        ]

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Called by ``ast.NodeTransformer``."""
        self.generic_visit(node)
        node.left, node.right = self._inline([node.left, node.right], integers=False)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Called by ``ast.NodeTransformer``."""
        self.generic_visit(node)
        name = call_name(node)
        if name == "tl.where" and len(node.args) == 3:
            node.args[1:] = self._inline(node.args[1:])
        elif name in ("maximum", "minimum"):
            node.args = sorted(self._inline(node.args), key=lambda each: isinstance(each, ast.Constant))
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Called by ``ast.NodeTransformer``."""
        self.generic_visit(node)
        node.left, *node.comparators = self._inline([node.left, *node.comparators])
        return node

"""Small tools over ``ast`` that reading and lowering share."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


def expression(text: str) -> ast.expr:
    """The expression that a text stands for."""
    return ast.parse(text, mode="eval").body


def call_name(call: ast.Call) -> str:
    """``tl.load`` for ``tl.load(...)``; empty where the callee is not a dotted name."""
    node: ast.expr = call.func
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def const_int(node: ast.expr) -> int | None:
    """The value of an integer expression without names, or None."""
    if any(not isinstance(n, ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop) for n in ast.walk(node)):
        return None
    value = eval(compile(ast.Expression(node), "<size>", "eval"), {"__builtins__": {}})
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def names(node: ast.AST) -> set[str]:
    """Every name that is read anywhere below a node."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


class Substitute(ast.NodeTransformer):
    """Replace names that are read by expressions."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def apply(self, node: Node) -> Node:
        """A changed copy of a node."""
        result: Node = self.visit(copy.deepcopy(node))
        return result

    def visit_Name(self, node: ast.Name) -> ast.expr:  # noqa: D102  (ast's own protocol)
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return copy.deepcopy(self.values[node.id])
        return node

"""Small tools over ``ast`` that reading and lowering share."""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Iterator, Mapping
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


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def const_int(node: ast.expr) -> int | None:
    """The value of an integer expression without names, or None."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = const_int(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = const_int(node.left), const_int(node.right)
        if left is None or right is None or (right == 0 and isinstance(node.op, ast.FloorDiv | ast.Mod)):
            return None
        return _OPERATIONS[type(node.op)](left, right)
    return None


def names(node: ast.AST) -> set[str]:
    """Every name that is read anywhere below a node."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def names_in_order(node: ast.AST) -> Iterator[str]:
    """Every name below a node, in the order of the text."""
    if isinstance(node, ast.Name):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from names_in_order(child)


def base_pointer(call: ast.Call) -> str:
    """The pointer that a load, store or atomic works on: ``in_ptr0`` for ``in_ptr0 + (x0)``."""
    node = call.args[0]
    while isinstance(node, ast.BinOp):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""


def size_of(node: ast.expr) -> tuple[str, int] | None:
    """``("x", 0)`` for ``x.shape[0]``, None for anything else."""
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "shape"
    ):
        dim = const_int(node.slice)
        return None if dim is None else (ast.unparse(node.value.value), dim)
    return None


class Substitute(ast.NodeTransformer):
    """Replace names that are read by expressions."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        """``values`` by name."""
        self.values = values

    def apply(self, node: Node) -> Node:
        """A changed copy of a node."""
        result: Node = self.visit(copy.deepcopy(node))
        return result

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Called by ``ast.NodeTransformer``."""
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return copy.deepcopy(self.values[node.id])
        return node

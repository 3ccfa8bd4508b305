"""Says for which sizes the kernel of a matrix product need not be compiled anew.

Triton compiles a kernel for sizes of 1, for sizes that are divisible by 16, and for others, as offsets that are multiples of such a
size can be loaded several at a time. A size that only says how many rows there are helps no load. With two of them, one kernel
would be compiled nine times, half a second each.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from pytest_kernelllm.core.syntax import assigned_once, read_names


def unspecialized(function: ast.FunctionDef, sizes: Sequence[str]) -> list[str]:
    """Returns those of a kernel's sizes that are no part of an offset, nor a factor of one."""
    made_of = {size: frozenset([size]) for size in sizes}
    for name, value in assigned_once(function).items():  # in the order of the text
        if (read := read_names(value)) and read <= made_of.keys():
            made_of[name] = frozenset[str]().union(*(made_of[each] for each in read))
    offsets = _Offsets(made_of)
    offsets.visit(function)
    return [size for size in sizes if size not in offsets.sizes]


class _Offsets(ast.NodeVisitor):
    """Collects the sizes that are added to something else, or multiplied with it."""

    def __init__(self, made_of: Mapping[str, frozenset[str]]) -> None:
        self.sizes: set[str] = set()
        self._made_of = made_of

    def visit_Assign(self, node: ast.Assign) -> None:
        if ast.unparse(node.targets[0]) not in self._made_of:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        match node.op:
            case ast.FloorDiv():  # a number of blocks
                return
            case ast.Mod():
                self.visit(node.left)
                return
        for side in (node.left, node.right):
            if (names := read_names(side)) <= self._made_of.keys():
                self.sizes.update(*(self._made_of[name] for name in names))
        self.generic_visit(node)

"""Says for which sizes the kernel of a matrix product need not be compiled anew.

Triton compiles a kernel for sizes of 1, for sizes that are divisible by 16, and for others, as several neighbours can be loaded at
once where an offset, or what a mask is compared with, is a multiple of such a size. Most sizes of a product only say how many rows
there are, which helps no load along a row. With two of them, one kernel would be compiled nine times, half a second each.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from kernelllm_judge.core.syntax import assigned_once, call_name, read_names


def unspecialized(function: ast.FunctionDef, sizes: Sequence[str]) -> list[str]:
    """Returns those of a kernel's sizes that are no part of an offset, nor of a mask of neighbouring rows."""
    made_of = {size: frozenset([size]) for size in sizes}
    for name, value in assigned_once(function).items():  # in the order of the text
        if (read := read_names(value)) and read <= made_of.keys():
            made_of[name] = frozenset[str]().union(*(made_of[each] for each in read))
    offsets = _Offsets(made_of, assigned_once(function))
    offsets.visit(function)
    return [size for size in sizes if size not in offsets.sizes]


class _Offsets(ast.NodeVisitor):
    """Collects the sizes that are added to something else or multiplied with it, and those that bound what is loaded by rows."""

    def __init__(self, made_of: Mapping[str, frozenset[str]], values: Mapping[str, ast.expr]) -> None:
        self.sizes: set[str] = set()
        self._made_of = made_of
        self._values = values

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
            case ast.Mod() if ast.unparse(node.left) in (
                "rm",
                "rn",
            ):  # the template's own, which says how it is aligned
                return
        for side in (node.left, node.right):
            if (names := read_names(side)) <= self._made_of.keys():
                self.sizes.update(*(self._made_of[name] for name in names))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if call_name(node) == "tl.load" and len(node.args) > 1:
            index = self._names(node.args[0])
            if "idx_m" in index and "idx_n" not in index:
                self.sizes.update(*(self._made_of.get(name, ()) for name in self._names(node.args[1])))
        self.generic_visit(node)

    def _names(self, node: ast.expr) -> set[str]:
        """Returns the names that an expression is made of, sizes among them."""
        found: set[str] = set()
        waiting = read_names(node)
        while waiting:
            found |= waiting
            read = (
                read_names(self._values[name])
                for name in waiting - self._made_of.keys()
                if name in self._values
            )
            waiting = set[str]().union(*read) - found
        return found

"""Finds the names that a piece of code takes from the module around it."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator


def free_roots(node: ast.AST) -> set[str]:
    """Returns the first part of each name that ``node`` takes from outside."""
    found = set(_read(symtable.symtable(ast.unparse(node), "<code>", "exec")))
    return found - {"__class__"}  # which Python binds itself


def _read(table: symtable.SymbolTable) -> Iterator[str]:
    outermost = table.get_type() == "module"
    for symbol in table.get_symbols():
        read = symbol.is_referenced() and (outermost or symbol.is_global())
        if read or symbol.is_declared_global():
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _read(inner)

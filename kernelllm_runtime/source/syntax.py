"""Small helpers over Python syntax trees with which source is read: names, imports and parameters.

Standard library only, and cheap to import: the pre-commit hooks load it.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from dataclasses import dataclass

Chain = tuple[str, ...]
"""A dotted name, split: ``m.helper`` is ``("m", "helper")``."""

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

_PARSING = threading.Lock()


def parse(source: str | bytes) -> ast.Module:
    """Works as ``ast.parse``, one thread at a time: CPython 3.11 counts recursion wrongly when several parse at once.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as ``ast.parse``.
    """
    with _PARSING:
        return ast.parse(source)


def chain_of(node: ast.AST) -> Chain | None:
    """Returns ``("a", "b", "c")`` for the expression ``a.b.c``, and None for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else None


def words(text: str) -> frozenset[str]:
    """Returns the words of a text."""
    return frozenset(text.split())


def expression(text: str) -> ast.expr:
    """Parses one expression."""
    return ast.parse(text, mode="eval").body


def parameters(arguments: ast.arguments, *, variadic: bool = False) -> list[ast.arg]:
    """Lists all parameters in order; ``*args`` and ``**kwargs`` come last, and only if ``variadic``."""
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    extra = [arguments.vararg, arguments.kwarg] if variadic else []
    return [*named, *(parameter for parameter in extra if parameter)]


def is_docstring(statement: ast.AST) -> bool:
    """Whether a statement is a bare constant (a docstring, ``...``), which has no effect."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


@dataclass(frozen=True)
class Import:
    """What an import statement binds a name to. ``name`` is None for a module itself."""

    level: int
    module: str
    name: str | None


def imports_of(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Import]]:
    """Yields each name that an import statement binds, ``*`` included, with what it is bound to."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, Import(node.level, node.module or "", alias.name)
        elif alias.asname:
            yield alias.asname, Import(0, alias.name, None)
        else:
            top = alias.name.partition(".")[0]
            yield top, Import(0, top, None)


def imports_inside(node: ast.AST) -> dict[str, list[Import]]:
    """Returns what code imports, in it and in all that is nested in it, by the names that are bound."""
    found: dict[str, list[Import]] = {}
    for statement in ast.walk(node):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for name, imported in imports_of(statement):
                found.setdefault(name, []).append(imported)
    return found


def assigned_names(node: ast.AST) -> Iterator[str]:
    """Yields the names that running ``node`` binds in the scope it stands in, other than by imports."""
    if isinstance(node, SCOPES):
        yield node.name
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif not isinstance(node, (ast.Lambda, *COMPREHENSIONS)):
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        for child in ast.iter_child_nodes(node):
            yield from assigned_names(child)

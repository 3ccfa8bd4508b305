"""Finds the names that a piece of code takes from the module around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernelllm_judge.core.syntax import (
    COMPREHENSIONS,
    Chain,
    assigned_names,
    chain_of,
    imports_of,
    parameters,
)

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class FreeName:
    """One place at which code reads a name of the module around it."""

    node: ast.expr
    """The node of the longest dotted name there: that of ``m.helper`` and not that of ``m``."""
    chain: Chain
    eager: bool
    """Whether it is read while the definition runs (a default, a base class, a decorator), not during a call."""


def free_names(node: ast.AST, body: frozenset[str] = frozenset()) -> Iterator[FreeName]:
    """Yields every place in ``node`` that reads a name which ``node`` does not bind itself.

    Args:
        node: any syntax tree.
        body: the names of the class body around it.
    """
    yield from _visit(node, frozenset(), body, True)


def free_roots(node: ast.AST) -> set[str]:
    """Returns the first part of each name that ``node`` takes from outside."""
    return {free.chain[0] for free in free_names(node)}


def _visit(node: ast.AST, bound: frozenset[str], body: frozenset[str], eager: bool) -> Iterator[FreeName]:
    """``bound``: the names of enclosing functions; ``body``: those of the class body around the node."""
    if (chain := chain_of(node)) is not None:
        assert isinstance(node, ast.expr)
        stored = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        if not stored and chain[0] not in bound and chain[0] not in body:
            yield FreeName(node, chain, eager)
    elif isinstance(node, _FUNCTION):
        inner: list[ast.AST] = list(node.body) if isinstance(node.body, list) else [node.body]
        for child in ast.iter_child_nodes(node):
            if not any(child is part for part in inner):
                yield from _visit(child, bound, body, eager)
        own = bound | _locals(node, inner)
        for part in inner:
            yield from _visit(part, own, frozenset(), False)
    elif isinstance(node, COMPREHENSIONS):
        yield from _visit(node.generators[0].iter, bound, body, eager)
        own = bound | {name for part in node.generators for name in assigned_names(part.target)}
        for child in ast.iter_child_nodes(node):
            if child is node.generators[0]:
                for part in (*node.generators[0].ifs, node.generators[0].target):
                    yield from _visit(part, own, frozenset(), eager)
            else:
                yield from _visit(child, own, frozenset(), eager)
    elif isinstance(node, ast.ClassDef):
        names = frozenset(name for part in node.body for name in assigned_names(part))
        for child in ast.iter_child_nodes(node):
            within = any(child is part for part in node.body)
            yield from _visit(child, bound, names if within else body, eager)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _visit(child, bound, body, eager)


def _locals(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, inner: list[ast.AST]) -> set[str]:
    own = {parameter.arg for parameter in parameters(node.args, variadic=True)}
    own |= {name for part in inner for name in assigned_names(part)}
    for part in (n for statement in inner for n in _same_scope(statement)):
        if isinstance(part, ast.Import | ast.ImportFrom):
            own |= {name for name, _ in imports_of(part)}
        elif isinstance(part, ast.NamedExpr):  # also from inside a comprehension
            own |= {part.target.id}
        elif isinstance(part, ast.Global):
            own -= set(part.names)
    return own


def _same_scope(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, (*_FUNCTION, ast.ClassDef)):
        for child in ast.iter_child_nodes(node):
            yield from _same_scope(child)

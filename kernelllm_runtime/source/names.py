"""Finds the names that a module binds at its top and the names that a piece of code reads, from the syntax tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kernelllm_runtime.source.syntax import (
    COMPREHENSIONS,
    SCOPES,
    Chain,
    Import,
    assigned_names,
    chain_of,
    imports_of,
    parameters,
)


@dataclass
class Bindings:
    """The statements at module level that give one name its value, alternatives and later changes included."""

    nodes: list[ast.AST] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)


def module_names(tree: ast.Module) -> tuple[dict[str, Bindings], tuple[Import, ...]]:
    """Returns what binds each name at the top of a module, and the module's star imports."""
    names: defaultdict[str, Bindings] = defaultdict(Bindings)
    stars: list[Import] = []
    _bind(tree.body, [], names, stars)
    return dict(names), tuple(stars)


def _bind(
    body: Iterable[ast.stmt], guards: list[ast.AST], names: defaultdict[str, Bindings], stars: list[Import]
) -> None:
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for name, imported in imports_of(statement):
                if name == "*":
                    stars.append(imported)
                else:
                    names[name].imports.append(imported)
        elif blocks := inner_blocks(statement):
            heads = [n for n in ast.iter_child_nodes(statement) if not isinstance(n, _BLOCK)]
            for head in heads:
                for name in assigned_names(head):
                    names[name].nodes += [*heads, *guards]
            for block in blocks:
                _bind(block, guards + heads, names, stars)
        else:
            for name in {*assigned_names(statement), *_changed(statement)}:
                names[name].nodes += [statement, *guards]


_BLOCK = (ast.stmt, ast.ExceptHandler, ast.match_case)


def inner_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Returns the blocks of an ``if``, ``try``, ``with``, loop or ``match``; ``if __name__ == ...`` has only its ``else``."""
    if isinstance(statement, SCOPES):
        return []
    if isinstance(statement, ast.If) and any(chain_of(n) == ("__name__",) for n in ast.walk(statement.test)):
        return [statement.orelse]
    blocks = [getattr(statement, part, []) for part in ("body", "orelse", "finalbody")]
    blocks += [part.body for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))]
    return [block for block in blocks if block]


def _changed(statement: ast.stmt) -> Iterator[str]:
    """Yields the names whose objects a module-level statement changes: ``TABLE["a"] = f``, ``A.forward = g``."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        targets = [statement.target]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        targets = [statement.value.func]
    for target in targets:
        node: ast.AST = target
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        if node is not target and isinstance(node, ast.Name):
            yield node.id


def reads(node: ast.AST, ignore: Callable[[ast.expr], bool]) -> set[Chain]:
    """Returns the dotted names that code takes from outside itself, without decorators for which ``ignore`` holds."""
    found: set[Chain] = set()
    _reads(node, frozenset(), ignore, found)
    return found


def _reads(
    node: ast.AST, bound: frozenset[str], ignore: Callable[[ast.expr], bool], found: set[Chain]
) -> None:
    if (chain := chain_of(node)) is not None:
        if chain[0] not in bound:
            found.add(chain)
        return
    inner: list[ast.AST] = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        inner = list(node.body) if isinstance(node.body, list) else [node.body]
        own = {parameter.arg for parameter in parameters(node.args, variadic=True)}
        own |= {name for part in inner for name in assigned_names(part)}
        own -= {
            name for part in inner for n in ast.walk(part) if isinstance(n, ast.Global) for name in n.names
        }
    elif isinstance(node, COMPREHENSIONS):
        own = {name for part in node.generators for name in assigned_names(part.target)}
        _reads(node.generators[0].iter, bound, ignore, found)  # evaluated outside
        inner = list(ast.iter_child_nodes(node))
    skipped = inner
    if isinstance(node, ast.ClassDef):
        skipped = [decorator for decorator in node.decorator_list if ignore(decorator)]
    for child in ast.iter_child_nodes(node):
        if not any(child is part for part in skipped):
            _reads(child, bound, ignore, found)
    for part in inner:
        _reads(part, bound | own, ignore, found)

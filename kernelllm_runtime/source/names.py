"""Finds the names that a module binds at its top and the names that a piece of code reads, from the syntax tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
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

STAR = "*"


@dataclass
class Bindings:
    """The statements at module level that give one name its value, alternatives and later changes included."""

    units: dict[int, tuple[ast.AST, ...]] = field(default_factory=dict)
    """What counts of each statement, by its number among those of the module."""
    parts: list[Import | None] = field(default_factory=list)
    """Imports, star imports and, as None, ``units``, in the order in which they may give the name its value."""

    @property
    def nodes(self) -> list[ast.AST]:
        """What counts of all statements, in their order."""
        return [node for number in sorted(self.units) for node in self.units[number]]

    @property
    def imports(self) -> list[Import]:
        """The imports that bind this very name."""
        return [part for part in self.parts if part is not None and part.name != STAR]


@dataclass(frozen=True)
class Unit:
    """One statement at module level without inner blocks, or the head of one that has some."""

    statement: ast.stmt
    parts: tuple[ast.AST, ...]
    """What runs: the statement itself, or its head."""
    guards: tuple[ast.AST, ...]
    """What decides whether it runs: the heads of the blocks around it, and which of their blocks it is in."""

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All that counts where the unit counts."""
        return (*self.parts, *self.guards)


@dataclass(frozen=True)
class ModuleNames:
    """What a module does at its top."""

    names: Mapping[str, Bindings]
    stars: tuple[Import, ...]
    units: tuple[Unit, ...]


def module_names(tree: ast.Module) -> ModuleNames:
    """Returns what binds each name at the top of a module, its star imports, and its statements in order."""
    names: defaultdict[str, Bindings] = defaultdict(Bindings)
    stars: list[Import] = []
    units = tuple(_units(tree.body, ()))
    for number, unit in enumerate(units):
        if isinstance(unit.statement, ast.Import | ast.ImportFrom):
            for name, imported in imports_of(unit.statement):
                if name == STAR:
                    stars.append(imported)
                    for bindings in names.values():
                        bindings.parts.append(imported)  # it may take the name's place
                    continue
                if unit.guards:
                    names[name].units[number] = unit.guards
                    names[name].parts.append(None)
                names[name].parts.append(imported)
        else:
            bound = {name for part in unit.parts for name in assigned_names(part)}
            for name in sorted(bound | {*_changed(unit.statement)}):
                if name not in names and (unit.guards or name not in bound):
                    # A star may have given it the value that it keeps or is changed.
                    names[name].parts += stars
                names[name].units[number] = unit.nodes
                names[name].parts.append(None)
    return ModuleNames(dict(names), tuple(stars), units)


def _units(body: Iterable[ast.stmt], guards: tuple[ast.AST, ...]) -> Iterator[Unit]:
    for statement in body:
        if is_program(statement):
            yield from _units(getattr(statement, "orelse", ()), guards)
        elif blocks := _blocks(statement):
            heads = tuple(n for n in ast.iter_child_nodes(statement) if not isinstance(n, _BLOCK))
            yield Unit(statement, heads, guards)
            for place, block in blocks:
                yield from _units(block, (*guards, *heads, *place))
        else:
            yield Unit(statement, (statement,), guards)


_BLOCK = (ast.stmt, ast.ExceptHandler, ast.match_case)


def inner_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Returns the blocks of an ``if``, ``try``, ``with``, loop or ``match``; ``if __name__ == ...`` has only its ``else``."""
    return [block for _, block in _blocks(statement)]


def _blocks(statement: ast.stmt) -> list[tuple[tuple[ast.AST, ...], list[ast.stmt]]]:
    """Returns the inner blocks, each after what tells it apart from the others of the statement."""
    if isinstance(statement, SCOPES):
        return []
    named = [(ast.Constant(part), getattr(statement, part, [])) for part in ("body", "orelse", "finalbody")]
    if is_program(statement):
        named = named[1:2]
    blocks: list[tuple[tuple[ast.AST, ...], list[ast.stmt]]] = [((place,), body) for place, body in named]
    for number, part in enumerate((*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))):
        asked = (n for n in ast.iter_child_nodes(part) if not isinstance(n, ast.stmt))
        blocks.append(((ast.Constant(f"part {number}"), *asked), part.body))
    return [(place, block) for place, block in blocks if block]


def is_program(statement: ast.AST) -> bool:
    """Whether a statement asks whether the module is run as a program."""
    return isinstance(statement, ast.If) and any(
        chain_of(n) == ("__name__",) for n in ast.walk(statement.test)
    )


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

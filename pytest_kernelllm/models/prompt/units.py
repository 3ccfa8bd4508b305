"""The statements of a module that is being assembled: their names, their dependencies and their order."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelllm_judge.core.syntax import bound_names, expression

RESERVED = ("Model", "ModelNew", "get_inputs", "get_init_inputs")
"""Names that have a fixed meaning in the module."""


@dataclass(eq=False)
class Symbol:
    """A name at the top of the module."""

    preferred: str
    """The name in the original source."""
    users: list[tuple[Unit, str | None]] = field(default_factory=list)
    """The units that use it, each with the plain name in its source; None if the source writes ``module.name``."""
    name: str = ""
    """The final name."""


@dataclass(eq=False)
class ImportedSymbol(Symbol):
    """An import: of a module, or of a member of one."""

    module: str = ""
    member: str | None = None

    def statement(self) -> str:
        """Returns the line that binds ``name``."""
        alias = f" as {self.name}"
        if self.member is not None:
            return f"from {self.module} import {self.member}{alias if self.name != self.member else ''}"
        return f"import {self.module}{alias if self.name != self.module else ''}"


@dataclass(eq=False)
class Unit(Symbol):
    """A statement at the top of the module: a class, a function or the assignment of a constant."""

    node: ast.stmt = field(default_factory=ast.Pass)
    module: Mapping[str, Any] = field(default_factory=dict)
    """The namespace of the module from which it is copied."""
    overlay: dict[str, Any] = field(default_factory=dict)
    """The values of names in ``node`` that no module binds."""
    uses: dict[int, tuple[Symbol, tuple[str, ...]]] = field(default_factory=dict)
    """The symbol that a part of ``node`` stands for, with the attributes read of it, by the part's ``id``."""
    eager: list[Unit] = field(default_factory=list)
    """Units that must be defined before this one."""
    needs: list[Unit] = field(default_factory=list)

    @functools.cached_property
    def bound(self) -> set[str]:
        """The names that are bound in any of its scopes, once the unit is complete."""
        return bound_names(ast.Module([self.node], []))


def name_all(symbols: Iterable[Symbol]) -> None:
    """Gives every symbol a unique name, as close to the preferred one as possible.

    A symbol does not get a name that one of its users binds itself.
    """
    taken: set[str] = set(RESERVED)
    for symbol in symbols:
        if symbol.name:
            continue
        name, number = symbol.preferred, 1
        while name in taken or any(spelled != name and name in unit.bound for unit, spelled in symbol.users):
            number += 1
            name = f"{symbol.preferred}_{number}"
        symbol.name = name
        taken.add(name)


def in_order(units: Iterable[Unit]) -> list[Unit]:
    """Sorts units so that each follows those it needs, except where they need each other."""
    deep: list[Unit] = []
    seen: set[int] = set()
    for unit in units:
        _collect(unit, seen, deep)
    placed: list[Unit] = []
    for unit in deep:
        _place(unit, set(), placed)
    return placed


def _collect(unit: Unit, seen: set[int], found: list[Unit]) -> None:
    if id(unit) not in seen:
        seen.add(id(unit))
        for other in (*unit.eager, *unit.needs):
            _collect(other, seen, found)
        found.append(unit)


def _place(unit: Unit, above: set[int], placed: list[Unit]) -> None:
    if unit in placed or id(unit) in above:
        return
    for other in unit.eager:
        _place(other, above | {id(unit)}, placed)
    placed.append(unit)


def source(unit: Unit) -> str:
    """Writes a unit as text, with every symbol under its final name."""
    node = _Rename(unit.uses).visit(unit.node)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        node.name = unit.name
    elif isinstance(node, ast.Assign):
        node.targets = [ast.Name(unit.name, ast.Store())]
    text = ast.unparse(ast.fix_missing_locations(node))
    return text.replace(":\n\n", ":\n", 1) if isinstance(node, ast.ClassDef) else text


class _Rename(ast.NodeTransformer):
    def __init__(self, uses: Mapping[int, tuple[Symbol, tuple[str, ...]]]) -> None:
        self._uses = uses

    def visit(self, node: ast.AST) -> Any:
        if id(node) not in self._uses:
            return self.generic_visit(node)
        symbol, trail = self._uses[id(node)]
        return expression(".".join((symbol.name, *trail)))

"""The pieces of a module that is being put together: what each is called, what it needs, and in which order."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_kernelllm.core.syntax import bound_names, expression

RESERVED = ("Model", "ModelNew", "get_inputs", "get_init_inputs")
"""Names with a meaning of their own in the module."""


@dataclass(eq=False)
class Symbol:
    """A name at the top of the module."""

    wanted: str
    speakers: list[tuple[Unit, str | None]] = field(default_factory=list)
    """Who says it, and as which plain name; None where the original says ``module.name``."""
    name: str = ""
    """What it is called in the end."""


@dataclass(eq=False)
class Imported(Symbol):
    """An import: of a module, or of a member of one."""

    module: str = ""
    member: str | None = None

    def statement(self) -> str:
        """The line that binds ``name``."""
        alias = f" as {self.name}"
        if self.member is not None:
            return f"from {self.module} import {self.member}{alias if self.name != self.member else ''}"
        return f"import {self.module}{alias if self.name != self.module else ''}"


@dataclass(eq=False)
class Unit(Symbol):
    """A statement: a class, a function or the assignment of a constant."""

    node: ast.stmt = field(default_factory=ast.Pass)
    module: Mapping[str, Any] = field(default_factory=dict)
    """What the module that it comes from holds."""
    overlay: dict[str, Any] = field(default_factory=dict)
    """What its own names stand for that no module binds."""
    uses: dict[int, tuple[Symbol, tuple[str, ...]]] = field(default_factory=dict)
    """By ``id`` of a node in ``node``: the symbol it stands for, and attributes of it."""
    eager: list[Unit] = field(default_factory=list)
    """Those that must exist before it is defined."""
    needs: list[Unit] = field(default_factory=list)

    @functools.cached_property
    def bound(self) -> set[str]:
        """Names bound in its scopes; asked for once it is complete."""
        return bound_names(ast.Module([self.node], []))


def name_all(symbols: Iterable[Symbol]) -> None:
    """Give every symbol a name of its own, as close to the wanted one as possible.

    A name that a piece of code binds for itself is not given to anything which that code speaks of.
    """
    taken: set[str] = set(RESERVED)
    for symbol in symbols:
        if symbol.name:
            continue
        name, number = symbol.wanted, 1
        while name in taken or any(
            spelled != name and name in unit.bound for unit, spelled in symbol.speakers
        ):
            number += 1
            name = f"{symbol.wanted}_{number}"
        symbol.name = name
        taken.add(name)


def in_order(units: Iterable[Unit]) -> list[Unit]:
    """Every unit after those it needs, as far as they do not need each other."""
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
    """The unit as text, everything under its final name."""
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

"""Copies the constants at the top of a module, including tables of classes and functions."""

from __future__ import annotations

import ast
import copy
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernelllm_judge.core.syntax import Import, chain_of
from pytest_kernelllm.models.prompt.errors import NotPortable
from pytest_kernelllm.models.prompt.observe import Observer, TableReads
from pytest_kernelllm.models.prompt.origins import MISSING, follow, home, is_definition, is_importable
from pytest_kernelllm.models.prompt.scopes import free_names
from pytest_kernelllm.models.prompt.sources import Sources
from pytest_kernelllm.models.prompt.trim import absolute
from pytest_kernelllm.models.prompt.values import ExpressionWriter, is_plain


@dataclass(frozen=True)
class Found:
    """A value under a name in a module's namespace; ``holder`` is None if the value has no namespace."""

    name: str
    value: Any
    holder: Mapping[str, Any] | None

    @property
    def module(self) -> str | None:
        """The name of the module, or None."""
        return None if self.holder is None else self.holder.get("__name__")


class Constants:
    """Finds or writes the statements that give names their values."""

    def __init__(self, sources: Sources, observer: Observer) -> None:
        """``observer`` finds out which entries of tables are read."""
        self.sources, self.observer = sources, observer
        self._tables: dict[int, TableReads] = {}
        self._made: dict[tuple[str | None, str], Callable[[], object]] = {}
        self.stale = False
        """Whether a new constant may read tables that were observed before, so that everything must be followed again."""

    def imported(self, found: Found) -> tuple[str, str] | None:
        """Returns the module and the name from which the value's module imports it, or None."""
        return next(((str(f.module), f.name) for f in self._imports(found)), None)

    def origin(self, found: Found) -> Found:
        """Finds the same value in the module that defines it."""
        seen: set[str | None] = set()
        while found.holder is not None and not is_importable(found.module) and found.module not in seen:
            seen.add(found.module)
            names, _ = self.sources.bindings(found.holder)
            if found.name in names and names[found.name].nodes:
                break
            found = next(self._imports(found), found)
        return found

    def statement(self, found: Found) -> tuple[ast.stmt, dict[str, Any]]:
        """Returns a statement that binds the name, and the values of the names that ``ExpressionWriter`` put into it.

        Raises:
            NotPortable: the name is set in a way that cannot be followed.
        """
        writer, value = ExpressionWriter(), found.value
        node = self._single(found)
        if isinstance(node, ast.FunctionDef):
            return node, {}
        made = None if node is None else node.value
        try:
            if _is_table(value) and found.holder is not None:
                made = self._narrowed(value, found.name, writer) or made
            elif made is None or (is_plain(value) and not _simple(made, found.holder or {})):
                made = writer.write(value)
        except NotPortable as refusal:
            if node is None:
                raise NotPortable(
                    f"the value of `{found.name}` in {found.module or 'a function'} ({refusal}) cannot be followed to "
                    "one assignment; assign it once, at the top of its module"
                ) from None
            made, writer = node.value, ExpressionWriter()
        assert made is not None
        self._will_be_made(found, node)
        return ast.Assign([ast.Name(found.name, ast.Store())], made), writer.names

    def entries(self, node: ast.stmt, namespace: Mapping[str, Any]) -> dict[str, Any]:
        """Replaces subscripts of tables in ``node`` by the table's entry, if a subscript always reads the same one.

        Returns:
            The values of the names that the new expressions contain.
        """
        writer = ExpressionWriter()
        _Entries(self, namespace, writer).visit(node)
        return writer.names

    def reads(self, table: Any, name: str) -> TableReads:
        """Returns what is read of a table."""
        if id(table) not in self._tables:
            self._tables[id(table)] = self.observer.table(table, name, list(self._made.values()))
        return self._tables[id(table)]

    def restart(self) -> None:
        """Forgets which entries were read but keeps what is known about constants."""
        self._tables.clear()
        self.stale = False

    def _will_be_made(self, found: Found, node: ast.Assign | None) -> None:
        """Records how a constant is made when its module is imported, because that may read tables, too."""
        key = found.module, found.name
        if (
            isinstance(node, ast.Assign)
            and not _is_table(found.value)
            and not is_plain(found.value)
            and key not in self._made
        ):
            code = compile(ast.fix_missing_locations(ast.Expression(node.value)), "<constant>", "eval")
            namespace = found.holder
            self._made[key] = lambda: eval(code, dict(namespace or {}))
            self.stale |= bool(self._tables)

    def _imports(self, found: Found) -> Iterator[Found]:
        if found.holder is None:
            return
        names, stars = self.sources.bindings(found.holder)
        single = names[found.name].imports if found.name in names else []
        for statement in (*single, *(Import(star.level, star.module, found.name) for star in stars)):
            if statement.name is not None:
                module = sys.modules.get(absolute("." * statement.level + statement.module, found.holder))
                if module and getattr(module, statement.name, MISSING) is found.value:
                    yield Found(statement.name, found.value, vars(module))

    def _single(self, found: Found) -> ast.Assign | ast.FunctionDef | None:
        """Returns the statement that gives a name its value, or None if there are several or none."""
        names, _ = self.sources.bindings(found.holder or {})
        nodes = names[found.name].nodes if found.name in names else []
        if len(nodes) != 1:
            return None
        node = copy.deepcopy(nodes[0])
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return ast.copy_location(ast.Assign([node.target], node.value), node)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            return node
        return node if isinstance(node, ast.FunctionDef) else None

    def _narrowed(self, table: dict[Any, Any], name: str, writer: ExpressionWriter) -> ast.expr | None:
        """Writes the table with only the entries that are read; None if it is read as a whole."""
        reads = self.reads(table, name)
        kind = type(table)
        if reads.whole or issubclass(kind, defaultdict):
            return None
        kept = writer.table(
            {key: dict.__getitem__(table, key) for key in reads.keys if dict.__contains__(table, key)}
        )
        return kept if kind is dict else ast.Call(writer.refer(kind), [kept], [])


class _Entries(ast.NodeTransformer):
    def __init__(self, constants: Constants, namespace: Mapping[str, Any], writer: ExpressionWriter) -> None:
        self._constants, self._namespace, self._writer = constants, namespace, writer

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        chain = chain_of(node.value)
        table = MISSING if chain is None else follow(self._namespace, chain)
        if chain is None or not _is_table(table) or not isinstance(node.ctx, ast.Load):
            return node
        reads, file = self._constants.reads(table, chain[-1]), self._namespace.get("__file__")
        keys = [
            key
            for (where, line), keys in reads.sites.items()
            if where == file and node.lineno <= line <= (node.end_lineno or line)
            for key in keys
        ]
        try:
            return _entry(table, keys[0], self._writer) if len(keys) == 1 else node
        except NotPortable:
            return node


def _entry(table: Any, key: Any, writer: ExpressionWriter) -> ast.expr:
    """Writes the value of ``table[key]``, also for a table of classes that makes an object at each access."""
    held, given = dict.__getitem__(table, key), table[key]
    if given is held:
        return writer.write(held)
    kind, arguments = held if isinstance(held, tuple) and len(held) == 2 else (held, {})
    if type(given) is kind and isinstance(arguments, dict):
        return writer.call(kind, (), arguments)
    raise NotPortable("a computed entry")


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and not is_plain(value)


def _simple(node: ast.expr, namespace: Mapping[str, Any]) -> bool:
    """Whether an expression uses only importable definitions and plain values of its module."""
    values = [follow(namespace, free.chain) for free in free_names(node)]
    return all(is_importable(home(v)) if is_definition(v) else is_plain(v) for v in values)

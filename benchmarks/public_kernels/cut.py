"""Cuts functions and classes, with all that they need, out of a checkout into one module.

Statements are taken over as they are. Only what is needed to stand alone is changed: imports from the project become
the imported definitions, and what a ``Project`` lists is replaced or left out.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


class CutError(RuntimeError):
    """Something cannot be cut out; one sentence."""


@dataclass(frozen=True)
class Project:
    """A checkout, and what kernels cut out of it do without."""

    root: Path
    """The folder that its packages are imported from."""
    replaced: dict[str, str] = field(default_factory=dict)
    """Source text by name, taken in place of the project's own definition."""
    plumbing: tuple[str, ...] = ()
    """Functions and objects whose decorators, ``with`` statements and lines of their own are left out."""
    rewrite: Callable[[ast.Call], ast.expr] = lambda call: call
    """Replaces calls, for example of functions that read configurations from files."""
    rewritten_from: Path | None = None
    """The module in which names are defined that ``rewrite`` adds."""

    def module(self, dotted: str) -> Path | None:
        """Returns the file of a module, relative to the root, or None where the project has none."""
        if not dotted.strip("."):
            return None
        base = Path(*dotted.split("."))
        files = (base.with_suffix(".py"), base / "__init__.py")
        return next((file for file in files if (self.root / file).is_file()), None)


def cut(project: Project, file: Path, names: Sequence[str]) -> str:
    """Returns a module with the named definitions of a file and everything of the project that they need.

    Args:
        project: the checkout.
        file: the module's path, relative to the project's root.
        names: functions, classes or constants at the module's top level.

    Raises:
        CutError: a file or a name is missing, or one name would mean two things.
    """
    result = _Cut(project)
    for name in names:
        result.take(file, name)
    result.check()
    return "\n\n".join(result.texts) + "\n"


@dataclass
class _Cut:
    """The statements taken so far, each after those that it needs."""

    project: Project
    texts: list[str] = field(default_factory=list)
    _modules: dict[Path, _Module] = field(default_factory=dict)
    _taken: set[tuple[Path, str]] = field(default_factory=set)
    _origins: dict[str, str] = field(default_factory=dict)
    """Where each name of the new module comes from."""
    _builtins: set[str] = field(default_factory=set)
    """Builtins that some statement uses."""

    def take(self, file: Path, name: str) -> None:
        """Adds the definition of a name after all that it needs, once."""
        if (file, name) in self._taken:
            return
        self._taken.add((file, name))
        module = self._module(file)
        if name in self.project.replaced:
            self._add(name, "its replacement", module, ast.parse(self.project.replaced[name]))
            return
        if name not in module.bindings:
            raise CutError(f"{file} defines no {name}.")
        for statement in module.bindings[name]:
            match statement:
                case ast.ImportFrom() if (
                    source := self.project.module(module.imported_from(statement))
                ) and (original := _original(statement, name)):
                    self._take_import(source, original, name, module)
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    alias = next(alias for alias in names if _alias(alias) == name)
                    imported = f"{module.imported_from(statement)}.{alias.name}".lstrip(".")
                    self._add(name, imported, module, ast.parse(_import(imported, name, alias)))
                case _:
                    # Parsed again, since others may need the statement as it was.
                    self._add(name, str(file), module, ast.parse(ast.unparse(statement)))

    def _take_import(self, source: Path, original: str, name: str, module: _Module) -> None:
        if self._submodule(module, name):
            return  # What is used of the module is taken where it is used.
        self.take(source, original)
        if name != original:
            self._add(name, f"{source}:{original}", module, ast.parse(f"{name} = {original}"))

    def _add(self, name: str, origin: str, module: _Module, tree: ast.Module) -> None:
        """Adds a statement of a module after what it needs."""
        if (known := self._origins.setdefault(name, origin)) != origin:
            raise CutError(f"Two definitions would be called {name}, from {known} and from {origin}.")
        submodules = {each: file for each in module.bindings if (file := self._submodule(module, each))}
        tidy = _Tidy(self.project, submodules)
        text = ast.unparse(ast.fix_missing_locations(tidy.visit(tree)))
        for file, used in tidy.of_modules:
            self.take(file, used)
        for used in _globals_used(text):
            if used in self.project.replaced or used in module.bindings.keys() - submodules.keys():
                self.take(module.file, used)
            elif hasattr(builtins, used):
                self._builtins.add(used)
            elif (other := self.project.rewritten_from) and used in self._module(other).bindings:
                self.take(other, used)
            elif used not in submodules.keys() | self._origins.keys():
                raise CutError(f"{module.file} uses {used} in {name}, which it does not define.")
        if text and text not in self.texts:
            self.texts.append(text)

    def _submodule(self, module: _Module, name: str) -> Path | None:
        """Returns the file of the module that a name stands for, or None. What a package defines hides its modules."""
        package, _, original = module.dotted(name).rpartition(".")
        source = self.project.module(package)
        defined = source is not None and original in self._module(source).bindings
        if name in self.project.replaced or defined:
            return None
        return self.project.module(f"{package}.{original}")

    def _module(self, file: Path) -> _Module:
        if file not in self._modules:
            path = self.project.root / file
            try:
                self._modules[file] = _Module(file, ast.parse(path.read_text(encoding="utf-8")))
            except OSError as error:
                raise CutError(f"{path} cannot be read: {error.strerror}.") from None
        return self._modules[file]

    def check(self) -> None:
        """Raises CutError where a name that means a builtin in one file is another's definition."""
        for name in sorted(self._builtins & self._origins.keys()):
            raise CutError(
                f"{name} means Python's own in one file and that of {self._origins[name]} in another."
            )


@dataclass(frozen=True)
class _Module:
    """A file of the project."""

    file: Path
    tree: ast.Module

    @cached_property
    def bindings(self) -> dict[str, list[ast.stmt]]:
        """The statements that bind each name."""
        found: dict[str, list[ast.stmt]] = {}
        for statement in self.tree.body:
            for name in dict.fromkeys(_bound(statement)):
                found.setdefault(name, []).append(statement)
        return found

    def imported_from(self, statement: ast.Import | ast.ImportFrom) -> str:
        """Returns the dotted name of the module that ``from … import`` names; empty for ``import``."""
        if isinstance(statement, ast.Import):
            return ""
        parents = self.file.with_suffix("").parts[: -statement.level] if statement.level else ()
        return ".".join([*parents, *([statement.module] if statement.module else [])])

    def dotted(self, name: str) -> str:
        """Returns ``package.name`` for a name bound by ``from package import name``, else an empty text."""
        for statement in self.bindings[name]:
            if isinstance(statement, ast.ImportFrom) and (original := _original(statement, name)):
                return f"{self.imported_from(statement)}.{original}"
        return ""


class _Tidy(ast.NodeTransformer):
    """Leaves out a project's plumbing, and names what is used of its modules directly."""

    def __init__(self, project: Project, submodules: dict[str, Path]) -> None:
        self.project = project
        self.submodules = submodules
        self.of_modules: list[tuple[Path, str]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Leaves out decorators."""
        node.decorator_list = [each for each in node.decorator_list if not self._is_plumbing(each)]
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """Keeps a branch of which nothing is left."""
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        """Leaves out contexts, and keeps what is inside."""
        node.items = [item for item in node.items if not self._is_plumbing(item.context_expr)]
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node if node.items else node.body

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Leaves out lines of their own."""
        return None if self._is_plumbing(node.value) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrites calls as the project says."""
        return self.generic_visit(self.project.rewrite(node))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Turns ``module.name`` into ``name`` for the project's modules."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.submodules:
            self.of_modules.append((self.submodules[node.value.id], node.attr))
            return ast.Name(node.attr, node.ctx)
        return node

    def _is_plumbing(self, node: ast.expr) -> bool:
        name = ast.unparse(node.func if isinstance(node, ast.Call) else node)
        return any(name == each or name.startswith(f"{each}.") for each in self.project.plumbing)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yields the names that a statement binds in its module, also inside of ``if`` and ``try``."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from map(_alias, names)
        case ast.If() | ast.Try() | ast.With():
            for child in ast.iter_child_nodes(statement):
                for each in child.body if isinstance(child, ast.ExceptHandler) else [child]:
                    if isinstance(each, ast.stmt):
                        yield from _bound(each)
        case _:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id


def _globals_used(text: str) -> list[str]:
    """Returns the names that a module looks up in its globals, or in the builtins."""
    module = symtable.symtable(text, "module", "exec")
    found = [symbol.get_name() for symbol in module.get_symbols() if symbol.is_referenced()]
    tables = module.get_children()
    while tables:
        table = tables.pop(0)
        found += [symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()]
        tables += table.get_children()
    return list(dict.fromkeys(found))


def _import(dotted: str, name: str, alias: ast.alias) -> str:
    """Returns one import of one name, always in the same form."""
    if alias.asname is None and alias.name == dotted:
        return f"import {dotted}"
    module, _, last = dotted.rpartition(".")
    if not module:
        return f"import {dotted} as {name}"
    return f"from {module} import {last}" + (f" as {name}" if name != last else "")


def _original(statement: ast.ImportFrom, name: str) -> str | None:
    return next((alias.name for alias in statement.names if _alias(alias) == name), None)


def _alias(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]

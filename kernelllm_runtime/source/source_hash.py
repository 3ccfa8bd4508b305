"""Hashes everything that a target's behaviour depends on; the source is read and never run.

The hash covers the class, what it reaches in the project through names and imports, every statement that may change
one of these while the class's file is imported (``changes``), the marker's arguments except ``kernel=``, and the names
and versions of the installed packages that it reaches. Comments, docstrings and formatting do not count, nor does the
place of a file, unless the code reads it (``places``). More may count than matters, never less, except for what shows
only at run time: names and modules that are computed (``getattr``, ``exec``, ``importlib``), files that are read, settings of
packages that are changed elsewhere, and what a program changes after it has imported the class.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kernelllm_runtime.source.changes import changes_of
from kernelllm_runtime.source.marks import Mark, is_marker
from kernelllm_runtime.source.names import reads
from kernelllm_runtime.source.places import gives_source, own_places, reads_any_place, reads_lines
from kernelllm_runtime.source.resolve import WHOLE_MODULE, Module, Origin, ProjectSources
from kernelllm_runtime.source.syntax import expression, imports_inside, is_docstring

VERSION = 2
"""Raised whenever the hash of unchanged source changes."""

EARLIER = 1
"""The version before, whose hashes are still recognised: it named files by their paths."""

_IN_ENVIRONMENT = ("torch", "triton", "kernelllm_runtime", "kernelllm_judge", "pytest_kernelllm")
"""Packages whose versions are not part of the hash, because a verdict records its environment."""


def source_hash(project: ProjectSources, module: Module, mark: Mark, version: int = VERSION) -> str:
    """Returns the SHA-256 over everything that the marked class depends on, as 64 hexadecimal digits.

    Args:
        version: ``VERSION``, or ``EARLIER`` for the hash that the version before gave the same source.
    """
    closure = _closure(project, module, mark, by_path=version == EARLIER)
    name = "" if version == EARLIER else ".".join(mark.expression)
    return hashlib.sha256("\n".join([str(version), name, *closure.entries()]).encode()).hexdigest()


def unknown_packages(project: ProjectSources, module: Module, mark: Mark) -> set[str]:
    """Returns the top-level modules that the marked class reaches and that are not installed here; the arguments are those above."""
    closure = _closure(project, module, mark)
    closure.entries()
    known = {"", *_IN_ENVIRONMENT, *sys.stdlib_module_names}
    return {top for top in closure.outside - known if distribution(top) == top}


def _closure(project: ProjectSources, module: Module, mark: Mark, *, by_path: bool = False) -> _Closure:
    closure = _Closure(project, module, by_path=by_path)
    if mark.node is not None:
        closure.add(module, "class", mark.node)
        if len(mark.expression) > 1 and mark.expression[0] in module.names:
            closure.add_changes(module, mark.expression[0])
    # Alternatives in an if/else, or a class from elsewhere.
    if mark.node is None or len(mark.expression) == 1:
        closure.add(module, "class", expression(".".join(mark.expression)))
    if mark.kind == "kernelbench":
        closure.add(module, "inputs", expression("get_inputs"))
        closure.add(module, "init", expression("get_init_inputs"))
    for number, options in enumerate((mark.options, *mark.others)):
        # Files are numbered in this order.
        for option in sorted(options, key=lambda option: option.arg or ""):
            if option.arg != "kernel":
                which = f"option {option.arg or '**'}" + (f" of marker {number}" if number else "")
                closure.add(module, which, option.value)
    return closure


class _Closure:
    """Collects the code that is reached, as lines of text; the set of lines is hashed."""

    def __init__(self, project: ProjectSources, start: Module, *, by_path: bool) -> None:
        self.project, self._start = project, start
        self._by_path = by_path
        self._changes = changes_of(project)
        self._looked_for: set[tuple[Path, Origin]] = set()
        """What was looked for among the changes that a module makes."""
        self._order: Counter[Origin] = Counter()
        self._numbers: dict[Path, int] = {}
        self._modules: dict[Path, Module] = {}
        self._reads_places = self._reads_lines = False
        self.outside: set[str] = set()
        self._lines: set[str] = set()
        self._seen: dict[Origin, None] = {}
        self._queue: list[tuple[Module, str, ast.AST]] = []

    def add(self, module: Module, role: str, node: ast.AST) -> None:
        self._queue.append((module, f"{self._named(module)} {role}", node))

    def entries(self) -> list[str]:
        """Follows everything that was added and returns the sorted lines."""
        while self._queue:
            while self._queue:
                self._follow(*self._queue.pop())
            self._add_changes_elsewhere()
        for module in self._modules.values():
            if self._reads_places and not self._by_path:
                self._lines.add(f"{self._named(module)} is {module.identity}")
            if self._reads_lines:
                self._lines.add(f"{self._named(module)} holds {_digest(module.path)}")
        return sorted(self._lines)

    def _follow(self, module: Module, role: str, node: ast.AST) -> None:
        ignore = partial(is_marker, self.project, module)
        # What a function imports is in the lines below, wherever it lies. A module as a whole has its imports, too.
        with_imports = self._by_path or isinstance(node, ast.Module)
        self._lines.add(f"{role}: {normalised(node, ignore, with_imports)}")
        local = imports_inside(node)
        named = self._named(module)
        for name in () if with_imports else sorted(local):
            origins = [o for o in self.project.resolve(module, (name,), local) if o.name != WHOLE_MODULE]
            self._reach_all(f"{named} import {name}", origins)
        for chain in sorted(reads(node, ignore)):
            origins = self.project.resolve(module, chain, local)
            self._reach_all(f"{named} {'.'.join(chain)}", origins)
            if chain[-1] == "__name__":
                for origin in self.project.resolve(module, chain[:-1], local) if chain[1:] else ():
                    if origin.module is not None and origin.name == WHOLE_MODULE:
                        self._lines.add(f"{self._named(origin.module)} is {origin.module.identity}")
        if not self._by_path:
            self._lines |= {f"{named} {name} = {module.identity}" for name in own_places(node)}
        self._reads_places |= reads_any_place(node)
        self._reads_lines |= reads_lines(node)

    def _named(self, module: Module) -> str:
        """How lines name a file: by its number in the order in which files are reached, which does not change when it moves."""
        number = self._numbers.setdefault(module.path, len(self._numbers))
        self._modules[module.path] = module
        return module.identity if self._by_path else str(number)

    def _reach_all(self, reader: str, origins: Sequence[Origin]) -> None:
        names = [self._reach(reader, origin) for origin in origins]
        if len(names) > 1:  # the last one may win
            self._lines.add(f"{reader} = {', then '.join(names)}")

    def _reach(self, reader: str, origin: Origin) -> str:
        if origin.module is None:
            folder = "" if self._by_path else origin.folder
            top = origin.name.partition(".")[0]
            self.outside.add(top)
            if gives_source(origin.name):
                self._reads_places = self._reads_lines = True
            name = f"{folder}{origin.name} {distribution(top)}"
        else:
            name = f"{self._named(origin.module)} {origin.name}"
            if origin not in self._seen:
                self._seen[origin] = None
                self._add_definition(origin.module, origin.name)
        self._lines.add(f"{reader} = {name}")
        return name

    def _add_definition(self, module: Module, name: str) -> None:
        if name == WHOLE_MODULE:
            self.add(module, WHOLE_MODULE, module.tree)
            return
        units = dict(module.names[name].units) | self._changes_within(module, name)
        self._add_units(module, name, units)

    def add_changes(self, module: Module, name: str) -> None:
        """Adds what changes a class whose definition counts without the rest of the class that it is in."""
        self._add_units(module, f"{name} changed", self._changes_within(module, name))
        self._seen.setdefault(Origin(module, name))

    def _changes_within(self, module: Module, name: str) -> dict[int, tuple[ast.AST, ...]]:
        made = self._changes.of(module)
        keys = (module.path, name), (module.path, WHOLE_MODULE)
        own = module.names[name].units
        return {n: own.get(n, module.units[n].nodes) for key in keys for n in made.get(key, ())}

    def _add_units(self, module: Module, role: str, units: Mapping[int, tuple[ast.AST, ...]]) -> None:
        nodes = [node for number in sorted(units) for node in units[number]]
        for count, node in enumerate(nodes):  # the last one may win
            self.add(module, f"{role} {count}", node)

    def _add_changes_elsewhere(self) -> None:
        """Adds what the modules that are imported with the class change in others that it reads."""
        for module in self._changes.loaded(self._start):
            changes = self._changes.of(module)
            for origin in [each for each in self._seen if (module.path, each) not in self._looked_for]:
                self._looked_for.add((module.path, origin))
                if origin.module is None or origin.module is module:
                    continue
                names: tuple[str, ...] = (origin.name, WHOLE_MODULE)
                if origin.name == WHOLE_MODULE:
                    names = tuple(sorted(name for path, name in changes if path == origin.module.path))
                for number in sorted(
                    {n for name in names for n in changes.get((origin.module.path, name), ())}
                ):
                    self._order[origin] += 1
                    role = f"{self._named(origin.module)} {origin.name} changed {self._order[origin]}"
                    for node in module.units[number].nodes:
                        self.add(module, role, node)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


@functools.cache
def distribution(top: str) -> str:
    """Returns ``name==version`` of the distribution that provides a top-level module, or the bare name.

    The name alone is returned for the standard library, for packages whose version does not count, and for
    unknown ones.
    """
    if not top or top in _IN_ENVIRONMENT or top in sys.stdlib_module_names:
        return top
    from importlib import metadata

    try:
        return f"{top}=={metadata.version(top)}"
    except metadata.PackageNotFoundError:
        names = sorted(set(_distributions().get(top, ())))
        return ",".join(f"{name}=={metadata.version(name)}" for name in names) or top


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    from importlib import metadata

    # Slow, because it reads every RECORD: only for names that are no distribution's.
    return metadata.packages_distributions()


def normalised(node: ast.AST, ignore: Callable[[ast.expr], bool], with_imports: bool = True) -> str:
    """Writes a syntax tree as text that does not depend on layout, docstrings or the Python version."""
    pieces: list[str] = []
    skipped: type[ast.stmt] | types.UnionType
    skipped = ast.Pass if with_imports else ast.Pass | ast.Import | ast.ImportFrom
    _normalise(node, ignore, skipped, pieces.append)
    return "".join(pieces)


_SKIPPED_FIELDS = ("ctx", "kind", "type_comment", "type_ignores")


def _normalise(
    node: Any,
    ignore: Callable[[ast.expr], bool],
    skipped: type[ast.stmt] | types.UnionType,
    write: Callable[[str], object],
) -> None:
    if isinstance(node, ast.Constant):
        write(f"{type(node.value).__name__} {node.value!a}")
    elif isinstance(node, ast.AST):
        write(type(node).__name__ + "(")
        for name in node._fields:
            value = getattr(node, name, None)
            if name == "decorator_list":
                value = [item for item in value or () if not ignore(item)]
            elif isinstance(node, ast.JoinedStr):  # Python 3.12 adds empty strings to nested formats
                value = [item for item in node.values if getattr(item, "value", None) != ""]
            # Newer Pythons add fields that are empty for older source, so empty fields are left out.
            if name not in _SKIPPED_FIELDS and value is not None and value != []:
                write(name + "=")
                _normalise(value, ignore, skipped, write)
                write(",")
        write(")")
    elif isinstance(node, list):
        write("[")
        for item in node:
            if not (isinstance(item, skipped) or is_docstring(item)):
                _normalise(item, ignore, skipped, write)
                write(",")
        write("]")
    else:
        write(ascii(node))

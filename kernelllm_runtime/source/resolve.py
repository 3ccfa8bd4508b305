"""Follows names in a project's source to their definitions, without running anything."""

from __future__ import annotations

import ast
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelllm_runtime.source.names import STAR, Bindings, Unit, module_names
from kernelllm_runtime.source.syntax import Chain, Import

WHOLE_MODULE = "*"


@dataclass(frozen=True, eq=False)
class Module:
    """A parsed file.

    ``label`` is its path in POSIX form relative to the project root. ``identity`` is its path relative to the
    folder from which it is imported, which does not depend on the root.
    """

    path: Path
    label: str
    identity: str
    tree: ast.Module
    names: Mapping[str, Bindings]
    stars: tuple[Import, ...]
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class Origin:
    """Where a name comes from: ``name`` at the top of ``module``, or the whole module if ``name`` is ``*``.

    If ``module`` is None, ``name`` is the qualified name of something outside the project.
    """

    module: Module | None
    name: str
    folder: str = ""
    """The folder that a relative ``name`` without a ``module`` counts from, as ``Module.identity`` names files."""


def package_root(path: Path) -> Path:
    """Returns the folder from which ``path`` is imported: the first one upwards without ``__init__.py``."""
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


class ProjectSources:
    """The files of one project, each read and parsed once, on demand."""

    def __init__(self, root: Path) -> None:
        """``root``: the project root, absolute."""
        self.root = root
        self.notes: dict[str, Any] = {}
        """What was found out about the files, kept as long as they are."""
        self._modules: dict[Path, Module | None] = {}
        self._files: dict[tuple[Path, Chain], Path | None] = {}
        self._tops: dict[Path, tuple[Path, ...]] = {}

    def parse(self, path: Path, source: bytes | None = None) -> Module:
        """Returns the parsed file.

        Raises:
            SyntaxError, ValueError: the file is not Python.
            OSError: the file cannot be read.
        """
        module = self._modules.get(path)
        if module is None:
            tree = ast.parse(path.read_bytes() if source is None else source, filename=str(path))
            top = module_names(tree)
            where = label(path, self.root), label(path, package_root(path))
            module = self._modules[path] = Module(path, *where, tree, top.names, top.stars, top.units)
        return module

    def find(self, importer: Module, level: int, parts: Sequence[str]) -> Module | None:
        """Returns the project's file for a module name that ``importer`` imports; None if it is not in the project."""
        for folder in self._search(importer.path, level):
            key = (folder, tuple(parts))
            if key not in self._files:
                self._files[key] = _module_file(folder.joinpath(*parts))
            if (path := self._files[key]) and (level or not _foreign(folder, parts, importer.path)):
                return self._try_parse(path)
        return None

    def resolve(
        self, module: Module, chain: Chain, local: Mapping[str, Sequence[Import]] | None = None
    ) -> list[Origin]:
        """Returns the possible origins of a dotted name, the last one to count last; none for builtins and unknown names.

        Args:
            local: the imports inside the code that reads it.
        """
        found: list[Origin] = []
        seen: set[tuple[Path, Chain]] = set()
        if local and chain[0] in local:
            for imported in local[chain[0]]:
                self._imported(module, imported, chain[1:], found, seen)
        else:
            self._member(module, chain, found, seen)
        return [origin for origin, _ in itertools.groupby(found)]

    def _search(self, importer: Path, level: int) -> Iterator[Path]:
        if level:
            yield from importer.parents[level - 1 : level]
        else:
            if importer.parent not in self._tops:
                tops = (package_root(importer), self.root, self.root / "src")
                self._tops[importer.parent] = tuple(dict.fromkeys(tops))
            yield from self._tops[importer.parent]

    def _try_parse(self, path: Path) -> Module | None:
        if path not in self._modules:
            try:
                return self.parse(path)
            except (SyntaxError, ValueError, OSError, RecursionError):
                self._modules[path] = None
        return self._modules[path]

    def _member(
        self, module: Module, chain: Chain, found: list[Origin], seen: set[tuple[Path, Chain]]
    ) -> None:
        if not chain:
            found.append(Origin(module, WHOLE_MODULE))
            return
        bindings = module.names.get(chain[0])
        if bindings and (module.path, chain) not in seen:
            seen.add((module.path, chain))
            for part in bindings.parts:
                if part is None:
                    found.append(Origin(module, chain[0]))
                elif part.name == STAR:
                    self._imported(module, Import(part.level, part.module, None), chain, found, seen)
                else:
                    self._imported(module, part, chain[1:], found, seen)
        elif module.path.name == "__init__.py" and (child := self.find(module, 1, chain[:1])):
            self._member(child, chain[1:], found, seen)
        elif (module.path, chain) not in seen:
            seen.add((module.path, chain))
            if "__getattr__" in module.names:
                found.append(Origin(module, "__getattr__"))
            for star in module.stars:
                self._imported(module, Import(star.level, star.module, None), chain, found, seen)

    def _imported(
        self,
        module: Module,
        imported: Import,
        rest: Chain,
        found: list[Origin],
        seen: set[tuple[Path, Chain]],
    ) -> None:
        parts = tuple(imported.module.split(".")) if imported.module else ()
        chain = (imported.name, *rest) if imported.name else rest
        # As in Python, the shortest prefix that is a file counts, and the rest is looked up in it.
        for taken in range(len(chain) + 1):
            if source := self.find(module, imported.level, parts + chain[:taken]):
                self._member(source, chain[taken:], found, seen)
                return
        folder = ""
        if imported.level:
            start = module.path.parents[imported.level - 1 : imported.level]
            folder = "".join(label(each, package_root(module.path)) for each in start)
        found.append(Origin(None, "." * imported.level + ".".join(parts + chain), folder))


def label(path: Path, root: Path) -> str:
    """Returns ``path`` in POSIX form relative to ``root``, as ids name it."""
    return Path(os.path.relpath(path, root)).as_posix()


def _module_file(base: Path) -> Path | None:
    if (base / "__init__.py").is_file():
        return base / "__init__.py"
    file = Path(f"{base}.py")
    return file if file.is_file() else None


def _foreign(folder: Path, parts: Sequence[str], importer: Path) -> bool:
    """Whether a module among installed packages is outside the project, although its importer was found there."""
    if folder.name not in ("site-packages", "dist-packages"):
        return False
    return not importer.is_relative_to(folder / parts[0])

"""The hash of everything a target's behaviour depends on, read from source and never run.

It covers the class, what it reaches in the project through names and imports, the marker's arguments except
``kernel=``, and name and version of the installed packages that it reaches. Comments, docstrings and
formatting do not count. What only shows at run time (``getattr`` by a computed name, files read, global
settings changed elsewhere) is not seen.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pytest_kernelllm.core.syntax import Import, expression, imports_of, is_docstring
from pytest_kernelllm.discover.marks import Mark, is_marker
from pytest_kernelllm.discover.names import reads
from pytest_kernelllm.discover.resolve import WHOLE_MODULE, Module, Origin, Project

VERSION = "1"
"""Changes when the hash of unchanged source changes."""

_IN_ENVIRONMENT = ("torch", "triton", "pytest_kernelllm")
"""Packages whose version is no part of the hash: a verdict names its own environment."""


def source_hash(project: Project, module: Module, mark: Mark, salt: str = "") -> str:
    """SHA-256 over everything that ``mark``'s class depends on, as 64 hexadecimal digits.

    Args:
        project: the parsed files, shared by all targets of a scan.
        module: the file that holds the marker.
        mark: the marker.
        salt: whatever else makes old results void, such as the judge's policy version.
    """
    closure = _Closure(project)
    if mark.node is not None:
        closure.add(module, "class", mark.node)
    if (
        mark.node is None or len(mark.expression) == 1
    ):  # alternatives in an if/else, or a class from elsewhere
        closure.add(module, "class", expression(".".join(mark.expression)))
    if mark.kind == "kernelbench":
        closure.add(module, "inputs", expression("get_inputs"))
        closure.add(module, "init", expression("get_init_inputs"))
    for option in mark.options:
        if option.arg != "kernel":
            closure.add(module, f"option {option.arg or '**'}", option.value)
    text = "\n".join([VERSION, salt, *closure.entries()])
    return hashlib.sha256(text.encode()).hexdigest()


class _Closure:
    """Code reached so far, as lines of text whose set is what gets hashed."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._lines: set[str] = set()
        self._seen: set[Origin] = set()
        self._queue: list[tuple[Module, str, ast.AST]] = []

    def add(self, module: Module, role: str, node: ast.AST) -> None:
        self._queue.append((module, f"{module.identity} {role}", node))

    def entries(self) -> list[str]:
        """Follow everything that was added; the sorted lines."""
        while self._queue:
            module, role, node = self._queue.pop()
            ignore = partial(is_marker, self.project, module)
            self._lines.add(f"{role}: {normalised(node, ignore)}")
            local: defaultdict[str, list[Import]] = defaultdict(list)
            for statement in ast.walk(node):
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    for name, imported in imports_of(statement):
                        local[name].append(imported)
            for chain in reads(node, ignore):
                for origin in self.project.resolve(module, chain, local):
                    self._reach(f"{module.identity} {'.'.join(chain)}", origin)
        return sorted(self._lines)

    def _reach(self, reader: str, origin: Origin) -> None:
        if origin.module is None:
            self._lines.add(f"{reader} = {origin.name} {distribution(origin.name.partition('.')[0])}")
            return
        self._lines.add(f"{reader} = {origin.module.identity} {origin.name}")
        if origin in self._seen:
            return
        self._seen.add(origin)
        if origin.name == WHOLE_MODULE:
            self.add(origin.module, WHOLE_MODULE, origin.module.tree)
        else:
            for number, node in enumerate(origin.module.names[origin.name].nodes):  # the last one may win
                self.add(origin.module, f"{origin.name} {number}", node)


@functools.cache
def distribution(top: str) -> str:
    """``name==version`` of what provides the top-level module ``top``; its bare name if that is no matter."""
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

    return metadata.packages_distributions()  # slow (it reads every RECORD), so only for odd names


def normalised(node: ast.AST, ignore: Callable[[ast.expr], bool]) -> str:
    """The syntax tree as text that does not depend on layout, docstrings or the Python version.

    Args:
        node: any syntax tree.
        ignore: tells decorators that do not count.
    """
    pieces: list[str] = []
    _normalise(node, ignore, pieces.append)
    return "".join(pieces)


_SKIPPED_FIELDS = ("ctx", "kind", "type_comment", "type_ignores")


def _normalise(node: Any, ignore: Callable[[ast.expr], bool], write: Callable[[str], object]) -> None:
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
            # Fields that newer Pythons added are empty in older source: emptiness must not show.
            if name not in _SKIPPED_FIELDS and value is not None and value != []:
                write(name + "=")
                _normalise(value, ignore, write)
                write(",")
        write(")")
    elif isinstance(node, list):
        write("[")
        for item in node:
            if not _without_effect(item):
                _normalise(item, ignore, write)
                write(",")
        write("]")
    else:
        write(ascii(node))


def _without_effect(node: Any) -> bool:
    """Docstrings, ``...`` and ``pass``."""
    return isinstance(node, ast.Pass) or is_docstring(node)

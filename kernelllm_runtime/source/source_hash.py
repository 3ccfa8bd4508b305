"""Hashes everything that a target's behaviour depends on; the source is read and never run.

The hash covers the class, what it reaches in the project through names and imports, the marker's arguments
except ``kernel=``, and the names and versions of the installed packages that it reaches. Comments, docstrings
and formatting do not count. What shows only at run time (``getattr`` with a computed name, files that are
read, global settings that are changed elsewhere) is not included.
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

from kernelllm_runtime.source.marks import Mark, is_marker
from kernelllm_runtime.source.names import reads
from kernelllm_runtime.source.resolve import WHOLE_MODULE, Module, Origin, ProjectSources
from kernelllm_runtime.source.syntax import Import, expression, imports_of, is_docstring

VERSION = "1"
"""Raised whenever the hash of unchanged source changes."""

_IN_ENVIRONMENT = ("torch", "triton", "kernelllm_runtime", "kernelllm_judge", "pytest_kernelllm")
"""Packages whose versions are not part of the hash, because a verdict records its environment."""


def source_hash(project: ProjectSources, module: Module, mark: Mark, salt: str = "") -> str:
    """Returns the SHA-256 over everything that the marked class depends on, as 64 hexadecimal digits.

    Args:
        project: the parsed files, shared by all targets of a scan.
        module: the file that holds the marker.
        mark: the marker.
        salt: anything else that makes old results invalid, such as the judge's policy version.
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
    """Collects the code that is reached, as lines of text; the set of lines is hashed."""

    def __init__(self, project: ProjectSources) -> None:
        self.project = project
        self._lines: set[str] = set()
        self._seen: set[Origin] = set()
        self._queue: list[tuple[Module, str, ast.AST]] = []

    def add(self, module: Module, role: str, node: ast.AST) -> None:
        self._queue.append((module, f"{module.identity} {role}", node))

    def entries(self) -> list[str]:
        """Follows everything that was added and returns the sorted lines."""
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

    return (
        metadata.packages_distributions()
    )  # slow, because it reads every RECORD: only for names that are no distribution's


def normalised(node: ast.AST, ignore: Callable[[ast.expr], bool]) -> str:
    """Writes a syntax tree as text that does not depend on layout, docstrings or the Python version.

    Args:
        node: any syntax tree.
        ignore: whether a decorator does not count.
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
            # Newer Pythons add fields that are empty for older source, so empty fields are left out.
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
    """Whether an item is a docstring, ``...`` or ``pass``."""
    return isinstance(node, ast.Pass) or is_docstring(node)

"""Finds the files that a target needs to be imported on another machine."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from kernelllm_judge.core.targets import Target
from kernelllm_runtime.source.resolve import Module, ProjectSources


def source_files(root: Path, target: Target) -> dict[Path, bytes]:
    """Returns a target's file, the project's files that it imports, and those that they import, by absolute path.

    Imports anywhere in a file count, also those in functions. Each file of a package brings the package's
    ``__init__.py``. Installed packages and data files are not included.

    Raises:
        OSError: a file cannot be read.
        SyntaxError, ValueError: the target's file is not Python.
    """
    root = root.absolute()
    project = ProjectSources(root)
    module = project.parse(Path(os.path.normpath(root / target.path)))
    left = [module]
    if target.kernel:
        left += _found(project, module, 0, target.kernel.split("."))
    files: set[Path] = set()
    while left:
        module = left.pop()
        if module.path not in files:
            files.add(module.path)
            left += _imported(project, module)
            left += _found(project, module, 0, module.identity.removesuffix(".py").split("/"))
    return {file: file.read_bytes() for file in sorted(files)}


def _imported(project: ProjectSources, module: Module) -> Iterator[Module]:
    """The project's files that a file imports."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _found(project, module, 0, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                yield from _found(project, module, node.level, [*parts, alias.name])


def _found(project: ProjectSources, module: Module, level: int, parts: list[str]) -> Iterator[Module]:
    """The files along a dotted name, packages first."""
    for length in range(0 if level else 1, len(parts) + 1):
        if found := project.find(module, level, parts[:length]):
            yield found

"""Finds packages that a source hash depends on and that are not installed in the hook's environment."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelllm_judge.core.syntax import imports_of
from kernelllm_runtime.source.resolve import Module, ProjectSources
from kernelllm_runtime.source.source_hash import distribution

_IRRELEVANT = ("torch", "triton", "kernelllm_runtime", "kernelllm_judge", "pytest_kernelllm")
"""Their versions are not part of a source hash."""


def missing_packages(project: ProjectSources, file: Path) -> list[str]:
    """Returns the top-level modules imported by a file and the project files it imports that are not installed here.

    Empty if torch is installed: then this is the project's own environment, and the project lacks them as well.

    Args:
        project: the parsed files.
        file: absolute path of a target's file.
    """
    if importlib.util.find_spec("torch") is not None:
        return []
    missing: set[str] = set()
    queue = [project.parse(file)]
    for module in queue:  # grows while it is read
        for level, parts in _imported(module):
            inside = _inside(project, module, level, parts)
            queue += [other for other in inside if other not in queue]
            if not inside and level == 0 and _unknown(parts[0]):
                missing.add(parts[0])
    return sorted(missing)


def _imported(module: Module) -> Iterator[tuple[int, tuple[str, ...]]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((0, tuple(alias.name.split("."))) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for _, imported in imports_of(node):
                name = imported.name or ""
                yield imported.level, tuple(part for part in (*imported.module.split("."), name) if part)


def _inside(project: ProjectSources, module: Module, level: int, parts: Sequence[str]) -> list[Module]:
    """The project's files that an import may run, including the packages above."""
    found = (project.find(module, level, parts[:taken]) for taken in range(1, len(parts) + 1))
    return [other for other in found if other is not None]


def _unknown(top: str) -> bool:
    return top not in (*_IRRELEVANT, *sys.stdlib_module_names) and distribution(top) == top

"""Finds the text of the class that a target marks, for people to read."""

from __future__ import annotations

import ast
import textwrap
import tokenize
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from kernelllm_judge.core.targets import Target
from kernelllm_runtime.record import Record
from kernelllm_runtime.source.resolve import Module, Origin, ProjectSources, package_root
from kernelllm_runtime.source.scan import mark_of


@dataclass(frozen=True)
class Original(Record):
    """The text of a target's class."""

    path: str
    """Its file in POSIX form: relative to the project root, or to the folder that an installed package is in."""
    line: int
    """1-based line at which the text begins."""
    text: str


def original(project: ProjectSources, target: Target) -> Original | None:
    """Returns the text of a target's class, also of one in an installed package; imports nothing.

    Returns None where the class cannot be found without running code, or its file has changed or cannot be read.
    """
    try:
        if (marked := mark_of(project, target)) is None:
            return None
        module, mark = marked
        if mark.node is not None:
            return _text(module, module.label, mark.node)
        return next(filter(None, map(_class, project.resolve(module, mark.expression))), None)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _class(origin: Origin) -> Original | None:
    """The class that a name comes from; None if it is none, or comes from a module that is not Python."""
    if origin.module is None:
        return _installed(origin.name)
    bindings = origin.module.names.get(origin.name)
    nodes = bindings.nodes if bindings else ()
    found = next((node for node in reversed(nodes) if isinstance(node, ast.ClassDef)), None)
    return _text(origin.module, origin.module.label, found) if found else None


def _installed(name: str) -> Original | None:
    """The class with this qualified name in an installed package."""
    top, *rest = name.split(".")
    spec = PathFinder.find_spec(top) if top and rest else None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    file = Path(spec.origin)
    package = ProjectSources(package_root(file))
    inside = (each for each in package.resolve(package.parse(file), tuple(rest)) if each.module)
    return next(filter(None, map(_class, inside)), None)


def _text(module: Module, label: str, node: ast.ClassDef) -> Original:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    with tokenize.open(module.path) as file:
        lines = file.read().split("\n")[first - 1 : node.end_lineno]
    return Original(label, first, textwrap.dedent("\n".join(lines)))

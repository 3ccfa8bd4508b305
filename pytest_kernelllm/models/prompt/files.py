"""Reads the files of live modules: which statement binds which name, and what may stay an import."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelllm_judge.core.syntax import Import, chain_of
from kernelllm_runtime.source.names import module_names
from kernelllm_runtime.source.syntax import parse

MISSING = object()

_ALWAYS_THERE = frozenset(("torch", "numpy", "triton")) | frozenset(sys.stdlib_module_names)
"""Packages that the text in a prompt imports."""

_INSTALLED = frozenset(("site-packages", "dist-packages"))
_OURS = ("kernelllm_runtime", "kernelllm_judge", "pytest_kernelllm")


@dataclass(frozen=True)
class File:
    """The source of a live module."""

    name: str
    namespace: Mapping[str, Any]
    body: tuple[ast.stmt, ...]
    binds: Mapping[str, tuple[int, ...]]
    """The positions in ``body`` of the statements that give a name its value, or change it, by name."""
    imports: Mapping[str, tuple[int, Import]]
    """Names that are imported: the position of the statement, and what is imported from where."""

    dotted: frozenset[str] = frozenset()
    """The ``a.b.c`` of every ``import a.b.c``."""

    def absolute(self, imported: Import) -> str:
        """Returns the full name of the module from which something is imported."""
        name = "." * imported.level + imported.module
        package = self.namespace.get("__package__") or self.name.rpartition(".")[0]
        return importlib.util.resolve_name(name, package) if imported.level else name


def read_file(name: str) -> File | None:
    """Reads the file of an imported module; returns None if it has none."""
    module = sys.modules.get(name)
    try:
        tree = parse(inspect.getsource(module)) if module else None
    except (OSError, TypeError, SyntaxError, ValueError):
        tree = None
    if module is None or tree is None:
        return None
    binds: dict[str, tuple[int, ...]] = {}
    imports: dict[str, tuple[int, Import]] = {}
    for position, statement in enumerate(tree.body):
        top = module_names(ast.Module([statement], []))
        for bound, bindings in top.names.items():
            if bindings.imports:
                imports[bound] = position, bindings.imports[-1]
            else:
                binds[bound] = (*binds.get(bound, ()), position)
        for star in top.stars:
            source = vars(
                sys.modules.get(File(name, vars(module), (), {}, {}).absolute(star), ModuleType(""))
            )
            for bound in source.keys() & vars(module).keys():
                imports.setdefault(bound, (position, Import(star.level, star.module, bound)))
    plain = (a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names if not a.asname)
    dotted = frozenset(each for each in plain if "." in each)
    return File(name, vars(module), tuple(tree.body), binds, imports, dotted)


def is_importable(module: str | None) -> bool:
    """Whether a module stays an import, by its name."""
    return bool(module) and str(module).partition(".")[0] in _ALWAYS_THERE


def is_ours(value: Any) -> bool:
    """Whether a value comes from this package or its runtime, such as the marker."""
    value = value.func if isinstance(value, functools.partial) else value
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] in _OURS


def is_library(value: Any) -> bool:
    """Whether a function or class is from an installed package other than PyTorch, NumPy and Triton."""
    home = getattr(value, "__module__", None)
    file = getattr(sys.modules.get(home or ""), "__file__", None)
    if is_importable(home) or not isinstance(file, str):
        return False
    return not _INSTALLED.isdisjoint(Path(file).parts)


def value_of(node: ast.AST, namespace: Mapping[str, Any]) -> Any:
    """Returns the value of a dotted name, or ``MISSING``."""
    chain = chain_of(node) or ("",)
    value = namespace.get(chain[0], MISSING)
    for part in chain[1:]:
        value = attribute(value, part)
    return value


def attribute(value: Any, name: str) -> Any:
    """Returns an attribute, or ``MISSING``."""
    try:
        return getattr(value, name, MISSING)
    except Exception:  # a property of the user's, or a module that imports others when it is read
        return MISSING


def spelled(value: Any) -> str | None:
    """Returns ``torch.nn.SiLU`` for that class: how a definition that needs no copy is written after an import."""
    name, home = getattr(value, "__name__", ""), getattr(value, "__module__", None) or "torch"
    for module in ("torch", "torch.nn", "torch.nn.functional", home):
        if is_importable(module) and getattr(sys.modules.get(module), name, MISSING) is value:
            return f"{module}.{name}"
    return None


def chains(node: ast.AST) -> Iterator[tuple[str, ...]]:
    """Yields the dotted names in a tree, and the parts of each that are names as well."""
    for part in ast.walk(node):
        chain = chain_of(part) if isinstance(part, ast.Attribute) else None
        if chain is not None:
            yield chain

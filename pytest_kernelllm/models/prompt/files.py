"""Reads the files of live modules: which statement binds which name, and what may stay an import."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelllm_judge.core.syntax import chain_of
from kernelllm_runtime.source.names import module_names
from kernelllm_runtime.source.syntax import parse

MISSING = object()

_ALWAYS_THERE = frozenset(("torch", "numpy", "triton")) | frozenset(sys.stdlib_module_names)
"""Packages that the text in a prompt imports."""

_INSTALLED = frozenset(("site-packages", "dist-packages"))
_OURS = ("kernelllm_runtime", "kernelllm_judge", "pytest_kernelllm")


class PromptError(Exception):
    """Raised if a target has no prompt; one sentence names the target, what cannot be shown and what to do."""


@dataclass(frozen=True)
class File:
    """The source of a live module."""

    name: str
    namespace: Mapping[str, Any]
    body: tuple[ast.stmt, ...]
    binds: Mapping[str, tuple[int, ...]]
    """The positions in ``body`` of the statements that give a name its value, or change it, by name; imports left out."""


def read_file(name: str | None) -> File | None:
    """Reads the file of an imported module; returns None if it has none."""
    module = sys.modules.get(name or "")
    try:
        body, binds = _parsed(inspect.getsource(module)) if module else ((), {})
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    return File(module.__name__, vars(module), body, binds) if module else None


@functools.lru_cache(maxsize=64)
def _parsed(source: str) -> tuple[tuple[ast.stmt, ...], dict[str, tuple[int, ...]]]:
    """Returns a source's statements, and which of them bind which names."""
    tree = parse(source)
    binds: dict[str, tuple[int, ...]] = {}
    for position, statement in enumerate(tree.body):
        for bound, bindings in module_names(ast.Module([statement], [])).names.items():
            if not bindings.imports:
                binds[bound] = (*binds.get(bound, ()), position)
    return tuple(tree.body), binds


def is_importable(module: str | None) -> bool:
    """Whether a module stays an import, by its name."""
    return bool(module) and str(module).partition(".")[0] in _ALWAYS_THERE


def home_of(value: Any) -> str | None:
    """Returns the name of the module that a value comes from."""
    value = value.func if isinstance(value, functools.partial) else value
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return home if isinstance(home, str) else None


def is_ours(value: Any) -> bool:
    """Whether a value comes from this package or its runtime, such as the marker."""
    return (home_of(value) or "").partition(".")[0] in _OURS


def is_library(value: Any) -> bool:
    """Whether a function or class is from an installed package other than PyTorch, NumPy and Triton."""
    home = home_of(value)
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

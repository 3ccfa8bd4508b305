"""Answers questions about code from its source text."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelllm_runtime.source.changes import changes_of
from kernelllm_runtime.source.names import STAR, Bindings
from kernelllm_runtime.source.resolve import WHOLE_MODULE, ProjectSources, package_root

BY_NAME = ("getattr", "hasattr")


@functools.lru_cache(maxsize=64)
def _read(file: str) -> tuple[Mapping[str, Bindings], frozenset[str]]:
    """Returns what binds each name at the top of a file, and those that are changed while the project is imported.

    Both are empty if the file cannot be read.
    """
    path = Path(file).absolute()
    project = ProjectSources(package_root(path))
    try:
        module = project.parse(path)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}, frozenset()
    changes = changes_of(project)
    library = path.is_relative_to(Path(ast.__file__).parent) or {"site-packages", "dist-packages"} & {
        *path.parts
    }
    made = {key for each in ([module] if library else changes.loaded(module)) for key in changes.of(each)}
    everything = (path, WHOLE_MODULE) in made
    return module.names, frozenset(name for name in module.names if everything or (path, name) in made)


def asked_by_name(code: types.CodeType) -> set[str] | None:
    """Returns the names with which code calls ``getattr`` and ``hasattr``; None if they are computed."""
    tree = _tree(code)
    if tree is None:
        return None
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    asked = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in BY_NAME]
    mentioned = sum(isinstance(n, ast.Name) and n.id in BY_NAME for n in ast.walk(tree))
    names = [
        call.args[1].value for call in asked if len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    ]
    if len(names) != mentioned:
        return None
    return {name for name in names if isinstance(name, str)}


def tried_on_self(code: types.CodeType) -> set[str]:
    """Returns the attributes that a method reads of ``self`` where it may have none, inside ``try``."""
    tree = _tree(code)
    tries = [n for n in ast.walk(tree) if isinstance(n, ast.Try)] if tree and code.co_argcount else []
    return {
        node.attr
        for each in tries
        for statement in each.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id == code.co_varnames[0]
    }


def is_literal_default(code: types.CodeType, name: str) -> bool:
    """Whether the source gives a parameter a constant as its default."""
    tree = _tree(code)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda)] if tree else []
    for function in functions[:1]:
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        given = dict(zip(reversed([a.arg for a in positional]), reversed(arguments.defaults), strict=False))
        given |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d}
        default = given.get(name)
        default = default.operand if isinstance(default, ast.UnaryOp) else default
        return isinstance(default, ast.Constant)
    return False


@functools.lru_cache(maxsize=1024)
def _tree(code: types.CodeType) -> ast.AST | None:
    """The syntax tree of a code object; None without a source."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None


def is_defined(key: str, value: Any, space: dict[str, Any] | None) -> bool:
    """Returns whether one definition or import in the source determines a function, class or module.

    Args:
        key: its name.
        value: what the name stands for.
        space: the globals in which it was found; None if it was not found among globals.
    """
    file = (space or {}).get("__file__")
    names, changed = _read(file) if file else ({}, frozenset())
    bound = names.get(key)
    if key in changed or (bound and any(part and part.name == STAR for part in bound.parts)):
        return False
    if bound is None:
        return space is not None and (
            isinstance(value, types.ModuleType) or getattr(value, "__name__", "") == key
        )
    if bound.imports:
        return len(bound.imports) == 1 and not bound.nodes
    return len(bound.nodes) == 1 and isinstance(bound.nodes[0], ast.FunctionDef | ast.ClassDef)


def is_changed(cls: type) -> bool:
    """Whether a statement of the project changes a class after its definition, or may, as far as its source tells."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return bool(file) and cls.__qualname__.partition(".")[0] in _read(file)[1]

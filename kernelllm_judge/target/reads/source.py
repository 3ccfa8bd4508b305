"""Answers questions about code from its source text."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from pathlib import Path
from typing import Any

from kernelllm_runtime.source.names import Bindings, module_names

BY_NAME = ("getattr", "hasattr")


@functools.lru_cache(maxsize=64)
def _bindings(file: str) -> dict[str, Bindings]:
    """Returns what binds each name at the top of a file; empty if it cannot be read."""
    try:
        return module_names(ast.parse(Path(file).read_bytes()))[0]
    except (OSError, SyntaxError, ValueError):
        return {}


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
    bound = _bindings(file).get(key) if file else None
    if bound is None:
        return space is not None and (
            isinstance(value, types.ModuleType) or getattr(value, "__name__", "") == key
        )
    if bound.imports:
        return len(bound.imports) == 1 and not bound.nodes
    return len(bound.nodes) == 1 and isinstance(bound.nodes[0], ast.FunctionDef | ast.ClassDef)

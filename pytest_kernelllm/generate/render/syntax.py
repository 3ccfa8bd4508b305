"""Small questions about syntax trees that several translators ask."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterator
from typing import Any


def dotted(node: ast.AST) -> str | None:
    """``"a.b.c"`` for a plain chain of names, None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return None


def name_chain(path: str) -> ast.expr:
    """The expression ``a.b.c``."""
    return ast.parse(path, mode="eval").body


def literal(value: object) -> ast.expr:
    """The expression that evaluates to a plain value."""
    if isinstance(value, tuple):
        return ast.Tuple([literal(item) for item in value], ast.Load())
    if isinstance(value, float) and not math.isfinite(value):
        return ast.Call(ast.Name("float", ast.Load()), [ast.Constant(repr(value))], [])
    return ast.parse(repr(value), mode="eval").body


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Every parameter, in order, ``*args`` and ``**kwargs`` left out."""
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    """The default of each parameter that has one."""
    positional = [*arguments.posonlyargs, *arguments.args]
    found = dict(zip([p.arg for p in positional[::-1]], arguments.defaults[::-1], strict=False))
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            found[parameter.arg] = default
    return found


def bound_names(node: ast.AST) -> set[str]:
    """Names that a function binds anywhere inside, but by imports: parameters, assignments, definitions."""
    names = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.arg):
            names.add(inner.arg)
        elif isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
            names.add(inner.id)
        elif isinstance(inner, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler) and inner is not node:
            names.add(inner.name or "")
    return names


def global_loads(node: ast.AST) -> Iterator[ast.Name]:
    """Uses of names that a top-level statement does not bind itself."""
    local = bound_names(node) if isinstance(node, ast.FunctionDef) else set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and inner.id not in local:
            yield inner


def is_jitted(node: ast.AST) -> bool:
    """Whether a function is a Triton kernel or device function."""
    return isinstance(node, ast.FunctionDef) and any(
        dotted(d.func if isinstance(d, ast.Call) else d) in ("triton.jit", "jit") for d in node.decorator_list
    )


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, with underscores behind it while it is taken."""
    while name in taken:
        name += "_"
    return name


class _Rename(ast.NodeTransformer):
    """Renames local variables."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self._names.get(node.arg, node.arg)
        return node


def rename_locals(function: ast.FunctionDef, names: dict[str, str]) -> None:
    """Give local variables and parameters of a function other names, in place."""
    _Rename(names).visit(function)


def is_plain(value: Any) -> bool:
    """Whether a value can be written as a literal: a scalar, or a tuple of such."""
    if isinstance(value, tuple):
        return all(is_plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str)

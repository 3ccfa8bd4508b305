"""Merges the texts for several dtypes into one where possible."""

from __future__ import annotations

import ast
from dataclasses import replace

from kernelllm_judge.render.inductor.kernel_text import function_text
from kernelllm_judge.render.inductor.program_text import (
    Allocation,
    AutogradText,
    ProgramText,
    Statements,
)


def merge(a: ProgramText, b: ProgramText) -> ProgramText | None:
    """Merges two texts into one that serves both domains; returns None if that is not possible.

    Kernels may differ only in conversions to float32. Such a conversion does not change a float32 tensor, so
    the text with all of them is correct for both.
    """
    statements, function = _statements(a.statements, b.statements), None
    if a.function is not None and b.function is not None:
        function = _function(a.function, b.function)
        if function is None:
            return None
    if statements is None or a.names != b.names or len(a.kernels) != len(b.kernels):
        return None
    kernels = []
    for left, right in zip(a.kernels, b.kernels, strict=True):
        both = left if left == right else _union(left, right)
        if both is None:
            return None
        kernels.append(both)
    return ProgramText(tuple(kernels), a.names, statements, a.helpers | b.helpers, function)


def _function(a: AutogradText, b: AutogradText) -> AutogradText | None:
    """Merges autograd functions, of which one may convert between dtypes as well."""
    forward, backward = _statements(a.forward, b.forward), _statements(a.backward, b.backward)
    if forward is None or backward is None:
        return None
    recomputed = tuple(dict.fromkeys(a.recomputed + b.recomputed))
    both = replace(a, forward=forward, backward=backward, recomputed=recomputed)
    return both if replace(b, forward=forward, backward=backward, recomputed=recomputed) == both else None


def _statements(a: Statements, b: Statements) -> Statements | None:
    """Merges statements; allocations may differ in dtype if an input does, too."""
    if len(a) != len(b):
        return None
    result: list[str | Allocation] = []
    for left, right in zip(a, b, strict=True):
        if isinstance(left, Allocation) and isinstance(right, Allocation):
            both = replace(
                left, dtypes=left.dtypes + right.dtypes, references=left.references + right.references
            )
            if both.text() is None or replace(right, dtypes=left.dtypes, references=left.references) != left:
                return None
            result.append(both)
        elif left == right:
            result.append(left)
        else:
            return None
    return tuple(result)


def _union(left: str, right: str) -> str | None:
    first, second = ast.parse(left).body[0], ast.parse(right).body[0]
    merged = _merged(first, second)
    return function_text(merged) if isinstance(merged, ast.FunctionDef) else None


def _merged(a: object, b: object) -> object | None:
    """Returns a tree with the conversions of both; None if they differ otherwise."""
    if _cast(a) and not _cast(b):
        a, b = b, a
    if _cast(b) and not _cast(a):
        assert isinstance(b, ast.Call) and isinstance(b.func, ast.Attribute)
        inner = _merged(a, b.func.value)
        if not isinstance(inner, ast.expr):
            return None
        return ast.Call(ast.Attribute(inner, "to", ast.Load()), b.args, [])
    if type(a) is not type(b):
        return None
    if isinstance(a, ast.AST) and isinstance(b, ast.AST):
        fields = {}
        for name in a._fields:
            left, right = getattr(a, name, None), getattr(b, name, None)
            value = _merged(left, right)
            if value is None and not (left is None and right is None):
                return None
            fields[name] = value
        return type(a)(**fields)
    if isinstance(a, list) and isinstance(b, list):
        items = [_merged(x, y) for x, y in zip(a, b, strict=False)]
        return items if len(a) == len(b) and None not in items else None
    return a if a == b else None


def _cast(node: object) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "to"
        and [ast.unparse(argument) for argument in node.args] == ["tl.float32"]
    )

"""Writes kernels and calls as text with wrapped lines."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence

WIDTH = 100


def function_text(function: ast.FunctionDef) -> str:
    """Writes a function as text; parameters and calls that are too long are wrapped."""
    decorators = "".join(f"@{ast.unparse(d)}\n" for d in function.decorator_list)
    parameters = [ast.unparse(a) for a in function.args.args]
    return f"{decorators}{call_text(f'def {function.name}', parameters, ':')}\n{_block(function.body)}\n"


def _block(statements: Sequence[ast.stmt], depth: int = 1) -> str:
    return textwrap.indent("\n".join(_statement(each, depth) for each in statements), "    ")


def _statement(statement: ast.stmt, depth: int) -> str:
    text = ast.unparse(ast.fix_missing_locations(statement))
    match statement:
        case ast.For(body=body, orelse=[]) | ast.If(body=body, orelse=[]):
            return f"{text.partition(chr(10))[0]}\n{_block(body, depth + 1)}"
        case ast.Assign(value=value) | ast.Expr(value=value) if len(text) + 4 * depth > WIDTH:
            start, (call, tail) = text[: len(text) - len(ast.unparse(value))], _head_call(value)
            if isinstance(call, ast.Call):
                arguments = [*map(ast.unparse, call.args), *map(ast.unparse, call.keywords)]
                return call_text(f"{start}{ast.unparse(call.func)}", arguments, tail, 4 * depth)
    return text


def _head_call(node: ast.expr) -> tuple[ast.expr, str]:
    """Splits ``tl.load(...).to(tl.float32)`` into ``tl.load(...)`` and ``.to(tl.float32)``."""
    match node:
        case (
            ast.Subscript(value=inner)
            | ast.Call(func=ast.Attribute(value=ast.Call() | ast.Subscript() as inner))
        ):
            call, tail = _head_call(inner)
            return call, tail + ast.unparse(node)[len(ast.unparse(inner)) :]
    return node, ""


def call_text(head: str, arguments: Sequence[str], tail: str = "", indent: int = 0) -> str:
    """Writes ``head(a, b)tail`` on one line or wrapped, for a text that will be indented by ``indent``."""
    line = f"{head}({', '.join(arguments)}){tail}"
    if len(line) + indent <= WIDTH:
        return line
    inner = ", ".join(arguments)
    if len(inner) + indent + 4 <= WIDTH:
        return f"{head}(\n    {inner}\n){tail}"
    return f"{head}(\n" + "".join(f"    {a},\n" for a in arguments) + f"){tail}"

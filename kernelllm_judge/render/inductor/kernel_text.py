"""Writes kernels as text with wrapped lines."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence

WIDTH = 100


def function_text(function: ast.FunctionDef) -> str:
    """Writes a function as text, with wrapped parameters."""
    decorators = "".join(f"@{ast.unparse(d)}\n" for d in function.decorator_list)
    parameters = [_parameter(a) for a in function.args.args]
    body = "\n".join(statement_text(s) for s in function.body)
    return (
        f"{decorators}{call_text(f'def {function.name}', parameters, ':')}\n{textwrap.indent(body, '    ')}\n"
    )


def statement_text(statement: ast.stmt, indent: int = 4) -> str:
    """Writes a statement as text; calls that are too long are wrapped."""
    ast.fix_missing_locations(statement)
    if isinstance(statement, ast.If) or (isinstance(statement, ast.For) and not statement.orelse):
        head = ast.unparse(statement).partition("\n")[0]
        text = f"{head}\n{_block(statement.body, indent)}"
        match statement.orelse:
            case []:
                return text
            case [ast.If() as other]:
                return f"{text}\nel{statement_text(other, indent)}"
            case other:
                return f"{text}\nelse:\n{_block(other, indent)}"
    text = ast.unparse(statement)
    if len(text) + indent <= WIDTH or not isinstance(statement, ast.Assign | ast.Expr):
        return text
    call, tail = _head_call(statement.value)
    if call is None:
        return text
    start = text[: len(text) - len(ast.unparse(statement.value))]
    arguments = [*map(ast.unparse, call.args), *(f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords)]
    return call_text(f"{start}{ast.unparse(call.func)}", arguments, tail, indent)


def _block(statements: Sequence[ast.stmt], indent: int) -> str:
    return textwrap.indent("\n".join(statement_text(each, indent + 4) for each in statements), "    ")


def _head_call(node: ast.expr) -> tuple[ast.Call | None, str]:
    """Splits ``tl.load(...).to(tl.float32)`` into ``tl.load(...)`` and ``.to(tl.float32)``."""
    tail = ""
    while True:
        if isinstance(node, ast.Subscript):
            inner = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            inner = node.func.value
            if not isinstance(inner, ast.Call | ast.Subscript):
                return node, tail
        else:
            return (node if isinstance(node, ast.Call) else None), tail
        tail = ast.unparse(node)[len(ast.unparse(inner)) :] + tail
        node = inner


def _parameter(arg: ast.arg) -> str:
    return arg.arg if arg.annotation is None else f"{arg.arg}: {ast.unparse(arg.annotation)}"


def call_text(head: str, arguments: Sequence[str], tail: str = "", indent: int = 0) -> str:
    """Writes ``head(a, b)tail`` on one line or wrapped, for a text that will be indented by ``indent``."""
    line = f"{head}({', '.join(arguments)}){tail}"
    if len(line) + indent <= WIDTH:
        return line
    inner = ", ".join(arguments)
    if len(inner) + indent + 4 <= WIDTH:
        return f"{head}(\n    {inner}\n){tail}"
    return f"{head}(\n" + "".join(f"    {a},\n" for a in arguments) + f"){tail}"

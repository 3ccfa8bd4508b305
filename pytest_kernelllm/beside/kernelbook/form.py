"""Converts a pair's texts between KernelBook's form and KernelBench's.

KernelBook names the class by ``entry_point``, and its ``get_init_inputs()`` returns ``[arguments, keyword arguments]``.
KernelBench names it ``Model``, and its ``get_init_inputs()`` returns the arguments.
"""

from __future__ import annotations

import ast
import io
import tokenize

from kernelllm_judge.core.program import UNREADABLE, parse
from kernelllm_judge.core.syntax import first_line
from pytest_kernelllm.beside.kernelbook.row import KernelBookError, Pair

_INIT_INPUTS = """

_arguments_of_kernelbook = get_init_inputs


def get_init_inputs():
    arguments, keywords = _arguments_of_kernelbook()
    return tuple(arguments), dict(keywords)
"""


def reference_of(pair: Pair) -> str:
    """Returns ``python_code`` as a reference: its class named ``Model``, its constructor's arguments as we read them.

    Raises:
        KernelBookError: the text is not Python, lacks what KernelBook's form has, or uses ``Model`` for something else.
    """
    tree = _tree(pair.python_code, "python_code")
    defined = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    for name in (pair.entry_point, "get_inputs", "get_init_inputs"):
        if name not in defined:
            raise KernelBookError(f"its python_code does not define {name}")
    return renamed(pair.python_code, pair.entry_point, "Model").rstrip("\n") + "\n" + _INIT_INPUTS


def candidate_of(pair: Pair) -> str:
    """Returns ``triton_code`` as a candidate: its class named ``ModelNew``.

    Raises:
        KernelBookError: there is no such text, or it uses ``ModelNew`` for something else.
    """
    if not pair.triton_code.strip():
        raise KernelBookError("it has no text in the column triton_code")
    return renamed(pair.triton_code, f"{pair.entry_point}New", "ModelNew")


def with_keyword_arguments(code: str) -> str:
    """Returns a module in KernelBench's form with ``get_init_inputs()`` as KernelBook has it.

    Args:
        code: ends ``get_init_inputs`` by returning a list that is written out, as ``standalone`` does.
    """
    function = next(
        node
        for node in parse(code).body
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs"
    )
    returned = function.body[-1]
    assert isinstance(returned, ast.Return) and returned.value is not None
    returned.value = ast.List([returned.value, ast.Dict([], [])], ast.Load())
    lines = code.split("\n")
    lines[first_line(function) - 1 : function.end_lineno] = [ast.unparse(function)]
    return "\n".join(lines)


def renamed(code: str, old: str, new: str) -> str:
    """Returns a text with a name replaced wherever it stands by itself, not as an attribute.

    Raises:
        KernelBookError: the text is not Python, or already uses the new name.
    """
    if old == new:
        return code
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError):
        raise KernelBookError(f"its text with {old} is not Python") from None
    names = [
        token
        for before, token in zip([tokens[0], *tokens], tokens, strict=False)
        if token.type == tokenize.NAME and before.string != "."
    ]
    if any(token.string == new for token in names):
        raise KernelBookError(f"it uses the name {new} for something else than {old}")
    lines = code.splitlines(keepends=True)
    for token in reversed(names):
        if token.string == old:
            (row, start), (_, end) = token.start, token.end
            lines[row - 1] = lines[row - 1][:start] + new + lines[row - 1][end:]
    return "".join(lines)


def _tree(code: str, column: str) -> ast.Module:
    try:
        return parse(code)
    except UNREADABLE as error:
        raise KernelBookError(f"its {column} is not Python ({getattr(error, 'msg', error)})") from None

"""Finds names that a rendered module reads and nothing defines, which would fail when it runs."""

from __future__ import annotations

import ast
import builtins

from kernelllm_judge.core.syntax import bound_names, read_names
from kernelllm_judge.render.errors import RenderError

_ALWAYS = frozenset({"torch", "triton", "tl", "__name__", *dir(builtins)})
"""Names that every kernel module has."""


def require_defined(body: str) -> None:
    """Requires that every name is defined somewhere in a module or in the function that reads it.

    Args:
        body: a kernel module without its head (see ``Rendered.body``).

    Raises:
        RenderError: one is not, and the message names it and where it is read; or the module is not Python.
    """
    try:
        tree = ast.parse(body)
    except SyntaxError as error:
        line = body.splitlines()[(error.lineno or 1) - 1].strip()
        raise RenderError(f"What the code becomes is not Python ({error.msg}): {line}") from None
    # What a function or a class binds is its own, but for its name.
    scopes = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    others = [node for node in tree.body if node not in scopes]
    defined = _ALWAYS | bound_names(ast.Module(others, [])) | {node.name for node in scopes}
    for node in tree.body:
        if missing := read_names(node) - bound_names(node) - defined:
            where = f"`{node.name}`" if isinstance(node, ast.FunctionDef | ast.ClassDef) else "The module"
            raise RenderError(f"{where} uses `{min(missing)}`, which the completion does not define.")

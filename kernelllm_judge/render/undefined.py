"""Imports what a rendered module reads, and finds names that nothing defines, which would fail when it runs."""

from __future__ import annotations

import ast
import builtins

from kernelllm_judge.core.syntax import bound_names, read_names
from kernelllm_judge.render.errors import RenderError

STANDARD = frozenset(
    (
        "collections",
        "contextlib",
        "dataclasses",
        "enum",
        "functools",
        "itertools",
        "math",
        "numbers",
        "operator",
    )
)
"""Modules of the standard library of which a kernel module may use something; the static check says what."""

_ALWAYS = frozenset({"torch", "triton", "tl", "__name__", *dir(builtins)})
"""Names that every kernel module has."""


def with_imports(body: str) -> str:
    """Returns a module with the imports of what it reads from the standard library and of libdevice.

    Raises:
        RenderError: the module is not Python.
    """
    read = read_names(_parsed(body))
    lines = [f"import {name}\n" for name in sorted(STANDARD & read)]
    lines += ["from triton.language.extra import libdevice\n"] * ("libdevice" in read)
    return f"{''.join(lines)}\n\n{body}" if lines else body


def require_defined(body: str) -> None:
    """Requires that every name is defined somewhere in a module or in the function that reads it.

    Args:
        body: a kernel module without its head (see ``Rendered.body``).

    Raises:
        RenderError: one is not, and the message names it and where it is read; or the module is not Python.
    """
    tree = _parsed(body)
    # What a function or a class binds is its own, but for its name.
    scopes = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    others = [node for node in tree.body if node not in scopes]
    defined = _ALWAYS | bound_names(ast.Module(others, [])) | {node.name for node in scopes}
    for node in tree.body:
        if missing := read_names(node) - bound_names(node) - defined:
            where = f"`{node.name}`" if isinstance(node, ast.FunctionDef | ast.ClassDef) else "The module"
            raise RenderError(f"{where} uses `{min(missing)}`, which the completion does not define.")


def _parsed(body: str) -> ast.Module:
    try:
        return ast.parse(body)
    except SyntaxError as error:
        line = body.splitlines()[(error.lineno or 1) - 1].strip()
        raise RenderError(f"What the code becomes is not Python ({error.msg}): {line}") from None

"""Reads the domains that a kernel module declares from its text."""

from __future__ import annotations

import ast

from kernelllm_runtime.source.syntax import parse
from kernelllm_runtime.targets import Domain, domains


class KernelModuleError(ValueError):
    """Source that is not a kernel module; the text says what is missing and on which line."""


def read_supports(source: str) -> tuple[Domain, ...]:
    """Returns the domains that a kernel module declares, without running it.

    Raises:
        KernelModuleError: no such literal, or not of the right form.
    """
    try:
        tree = parse(source)
    except SyntaxError as error:
        raise KernelModuleError(f"line {error.lineno}: {error.msg}") from None
    node = supports_node(tree)
    try:
        return domains(ast.literal_eval(node.value))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise KernelModuleError(
            f"line {node.lineno}: SUPPORTS is not of the published form ({error})"
        ) from None


def supports_node(tree: ast.Module) -> ast.Assign:
    """Returns the statement ``SUPPORTS = (...)`` of a kernel module.

    Raises:
        KernelModuleError: there is none, or the name is used elsewhere.
    """
    found = next(
        (
            n
            for n in tree.body
            if isinstance(n, ast.Assign) and [ast.unparse(t) for t in n.targets] == ["SUPPORTS"]
        ),
        None,
    )
    if found is None:
        raise KernelModuleError("there is no top-level SUPPORTS = (...)")
    for node in ast.walk(tree):
        if node is not found.targets[0] and "SUPPORTS" in _names(node):
            raise KernelModuleError(
                f"line {getattr(node, 'lineno', 1)}: SUPPORTS is named again; it must stay what it is on line {found.lineno}"
            )
    return found


def _names(node: ast.AST) -> list[str]:
    """The identifiers that a node itself holds."""
    if isinstance(node, ast.Constant):
        return []
    fields = [value for _, value in ast.iter_fields(node)]
    return [
        name
        for value in fields
        for name in (value if isinstance(value, list) else [value])
        if isinstance(name, str)
    ]

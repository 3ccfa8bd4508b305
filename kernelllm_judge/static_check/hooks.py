"""Refuses names by which pytest would run a kernel module's code if it imported the file as a conftest or plugin."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_READ_BY_PYTEST = ("collect_ignore", "collect_ignore_glob")


def pytest_name(node: ast.AST) -> Iterator[str]:
    """Yields a reason if a node binds a name that pytest looks for in a module."""
    match node:
        case (
            ast.FunctionDef(name=name)
            | ast.ClassDef(name=name)
            | ast.alias(asname=str(name))
            | ast.Name(id=name, ctx=ast.Store())
        ):
            if name.startswith("pytest_") or name in _READ_BY_PYTEST:
                yield f"defines `{name}`, which pytest would use"

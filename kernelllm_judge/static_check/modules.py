"""Checks what a kernel module imports, and where it uses modules and enumerations."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from kernelllm_judge.static_check.allowed import ENUMERATIONS, NAMESPACES
from kernelllm_judge.static_check.scopes import ScopedNode, paths


def import_from(node: ast.ImportFrom) -> Iterator[str]:
    """Yields what is wrong with the names that are imported from a module."""
    allowed = NAMESPACES.get(node.module or "") if not node.level else None
    for alias in node.names:
        path = f"{node.module}.{alias.name}"
        if allowed is None or alias.name == "*":
            yield f"imports from {'.' * node.level}{node.module or ''}" + (" *" if alias.name == "*" else "")
        elif alias.name not in allowed and path not in NAMESPACES:
            yield f"imports {path}"


def module_positions(nodes: list[ScopedNode]) -> set[int]:
    """Returns the ids of nodes that may be a module.

    They are before a dot, after ``name =``, in ``hasattr`` and in conditions.
    """
    found: set[int] = set()
    for scoped in nodes:
        match scoped.node:
            case ast.Attribute(value=value):
                found.add(id(value))
            case (
                ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(target=ast.Name(), value=value)
            ):
                found.add(id(value))
            case ast.Call(func=ast.Name(id="hasattr"), args=[first, ast.Constant()]):
                found.add(id(first))
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()]):
                found.add(id(left))
            case ast.If(test=test) | ast.IfExp(test=test) | ast.UnaryOp(op=ast.Not(), operand=test):
                found.add(id(test))
    return found


def module_as_value(scoped: ScopedNode, roots: set[int]) -> Iterator[str]:
    """Yields a reason if a module is used other than before a dot; ``roots`` comes from ``module_positions``."""
    for path in _read(scoped, NAMESPACES.keys(), roots):
        yield f"passes the module `{path}` around"


def enumeration_as_value(scoped: ScopedNode, bases: set[int]) -> Iterator[str]:
    """Yields a reason if ``enum.Enum`` is used other than as a base, such as to make a class in a call."""
    for path in _read(scoped, ENUMERATIONS, bases):
        yield f"uses {path} other than as a base, which may keep state between calls"


def _read(scoped: ScopedNode, names: Set[str], elsewhere: set[int]) -> list[str]:
    """Returns which of these dotted names a node reads, unless its id is one of ``elsewhere``."""
    node = scoped.node
    if not isinstance(node, ast.Name | ast.Attribute) or id(node) in elsewhere:
        return []
    return sorted(paths(node, scoped.scope) & names) if isinstance(node.ctx, ast.Load) else []

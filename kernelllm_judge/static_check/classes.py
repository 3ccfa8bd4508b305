"""Checks the classes that a kernel module defines."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelllm_judge.static_check.allowed import BASES, ENUMERATIONS
from kernelllm_judge.static_check.scopes import OWN_CLASS, LexicalScope, paths


def class_definition(node: ast.ClassDef, scope: LexicalScope) -> Iterator[str]:
    """Yields what is wrong with a class."""
    if node.keywords:
        yield "gives a class arguments of a metaclass"
    for base in node.bases:
        builtin = isinstance(base, ast.Name) and base.id in BASES and not scope.holders(base.id)
        if not builtin and not paths(base, scope) <= BASES | {OWN_CLASS}:
            yield f"derives a class from {ast.unparse(base)}"
    enumeration = any(paths(base, scope) & ENUMERATIONS for base in node.bases)
    if enumeration and (len(node.bases) > 1 or not _is_plain_enumeration(node.body)):
        yield f"may keep state between calls in `{node.name}`: an enumeration has constants and methods only"


def _is_plain_enumeration(body: list[ast.stmt]) -> bool:
    """Whether a class's body gives an enumeration members, so that nothing derives from it, and adds no state to them.

    Names with an underscore are Python's own hooks: ``__init__`` runs for every member when the class is made.
    """
    members = 0
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                members += isinstance(value, ast.Constant)
            case ast.FunctionDef(name=name):
                pass
            case ast.Expr(value=ast.Constant()):
                continue
            case _:
                return False
        if name.startswith("_"):
            return False
    return members > 0


def derives_from_function(scope: LexicalScope | None) -> bool:
    """Whether a scope is that of a class which derives from ``torch.autograd.Function`` alone."""
    if scope is None or not isinstance(scope.node, ast.ClassDef) or scope.parent is None:
        return False
    bases = [paths(base, scope.parent) for base in scope.node.bases]
    return bases == [frozenset(["torch.autograd.Function"])]

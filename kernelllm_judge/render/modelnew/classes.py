"""Resolves what a class of a completion inherits from the completion's other classes."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from kernelllm_judge.core.syntax import dotted


def whole_class(cls: ast.ClassDef, top: Mapping[str, ast.stmt]) -> ast.ClassDef:
    """Returns a class with the members of its bases, without these bases.

    What it overrides is kept as ``_Base_name``, which ``super().name(...)`` then calls.

    Args:
        cls: the class.
        top: the completion's top-level definitions.
    """
    bases = [top.get(dotted(base) or "") for base in cls.bases]
    own = [base for base in bases if isinstance(base, ast.ClassDef) and base is not cls]
    if not own:
        return cls
    base = whole_class(own[0], {name: node for name, node in top.items() if node is not cls})
    result = copy.deepcopy(cls)
    mine = {node.name for node in result.body if isinstance(node, ast.FunctionDef)}
    calls = _ToBase(base.name, {n.name for n in base.body if isinstance(n, ast.FunctionDef)})
    inherited = copy.deepcopy(base.body)
    for node in inherited:
        if isinstance(node, ast.FunctionDef) and node.name in mine:
            node.name = calls.new_name(node.name)
    result.body = [*inherited, *(calls.visit(node) for node in result.body)]
    result.bases = []
    return result


class _ToBase(ast.NodeTransformer):
    """Replaces ``super().forward(x)`` and ``Base.forward(self, x)`` by ``self._Base_forward(x)``."""

    def __init__(self, base: str, methods: set[str]) -> None:
        self._base, self._methods = base, methods

    def new_name(self, method: str) -> str:
        return f"_{self._base}_{method.strip('_')}"

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name) if name in self._methods:
                node.func = self._method(name)
            case ast.Attribute(value=ast.Name(id=base), attr=name) if base == self._base:
                node.func, node.args = self._method(name), node.args[1:]
        return node

    def _method(self, name: str) -> ast.expr:
        return ast.Attribute(ast.Name("self", ast.Load()), self.new_name(name), ast.Load())

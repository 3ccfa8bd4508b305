"""Turns ``torch.autograd.Function`` classes into plain functions if no gradients are needed."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from kernelllm_judge.core.syntax import RemovingTransformer, dotted, parameters
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.modelnew.spelling import Imported, resolved


def is_autograd_function(node: ast.AST, imported: Mapping[str, Imported]) -> bool:
    """Whether a top-level statement is a class derived from ``torch.autograd.Function``."""
    if not isinstance(node, ast.ClassDef):
        return False
    bases = [resolved(dotted(base) or "", imported) for base in node.bases]
    return any(path.endswith("autograd.Function") for path in bases)


def as_functions(tree: ast.Module, imported: Mapping[str, Imported]) -> ast.Module:
    """Replaces ``class F(Function)`` by its forward without ``ctx`` as ``def F``, and ``F.apply(x)`` by ``F(x)``."""
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and is_autograd_function(n, imported)]
    functions = {node.name for node in classes}
    tree.body = [_forward(n) if isinstance(n, ast.ClassDef) and n in classes else n for n in tree.body]
    return _Applied(functions).visit(tree)  # type: ignore[no-any-return]  # typeshed: visit() -> Any


class _Applied(ast.NodeTransformer):
    """Replaces ``F.apply`` by ``F``."""

    def __init__(self, functions: Collection[str]) -> None:
        self._functions = functions

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Attribute(value=ast.Name(id=name) as function, attr="apply") if name in self._functions:
                return function
        return node


def _forward(cls: ast.ClassDef) -> ast.FunctionDef:
    forward = next((n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    if forward is None or not forward.args.args:
        raise RenderError(f"Line {cls.lineno}: the autograd function {cls.name} has no forward(ctx, ...).")
    context = parameters(forward.args)[0].arg
    forward.args.args = [a for a in forward.args.args if a.arg != context]
    forward.decorator_list = []
    forward.name = cls.name
    _WithoutContext(context).visit(forward)
    for node in ast.walk(forward):
        if isinstance(node, ast.Name) and node.id == context:
            raise RenderError(f"Line {node.lineno}: forward of {cls.name} needs its context for the result.")
    return forward


class _WithoutContext(RemovingTransformer):
    """Removes calls such as ``ctx.save_for_backward(x)``; what is kept, ``ctx.n``, becomes a local variable ``ctx_n``."""

    def __init__(self, context: str) -> None:
        self._context = context

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name == self._context:
                return None
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if dotted(node.value) == f"{self._context}.needs_input_grad":
            return ast.copy_location(ast.Constant(False), node)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if dotted(node) == f"{self._context}.{node.attr}":
            return ast.copy_location(ast.Name(f"{self._context}_{node.attr}", node.ctx), node)
        return self.generic_visit(node)

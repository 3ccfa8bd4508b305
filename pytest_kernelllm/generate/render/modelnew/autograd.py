"""Turns ``torch.autograd.Function`` classes into plain functions if no gradients are needed."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from pytest_kernelllm.core.syntax import Substitute, bound_names, dotted, expression, parameters
from pytest_kernelllm.generate.render.errors import RenderError
from pytest_kernelllm.generate.render.modelnew.spelling import Imported


def is_autograd_function(node: ast.AST, imported: Mapping[str, Imported]) -> bool:
    """Whether a top-level statement is a class derived from ``torch.autograd.Function``."""
    if not isinstance(node, ast.ClassDef):
        return False
    names = [dotted(base) or "" for base in node.bases]
    paths = [imported[name].path if name in imported else name for name in names]
    return any(path.endswith("autograd.Function") for path in paths)


def as_functions(tree: ast.Module, imported: Mapping[str, Imported]) -> ast.Module:
    """Replaces ``class F(Function)`` by its forward without ``ctx`` as ``def F``, and ``F.apply(x)`` by ``F(x)``.

    Raises:
        RenderError: such a class has no forward, or its forward needs ``ctx`` for its result.
    """
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and is_autograd_function(n, imported)]
    functions = {node.name for node in classes}
    tree.body = [_forward(n) if isinstance(n, ast.ClassDef) and n in classes else n for n in tree.body]
    aliases = {alias: expression(name) for alias, name in _aliases(tree, functions).items()}
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.Assign) and bound_names(node) & aliases.keys())
    ]
    _Applied(functions).visit(tree)
    return Substitute(aliases).apply(tree)


def _aliases(tree: ast.Module, functions: Collection[str]) -> dict[str, str]:
    """Returns the function that each ``f = F.apply`` at top level stands for, by names that nothing else binds."""
    found: dict[str, str] = {}
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=alias)], value=ast.Attribute(value=ast.Name(id=name), attr="apply")
            ) if name in functions:
                found[alias] = name
    bound = Counter(name for node in ast.walk(tree) for name in _binds(node))
    return {alias: name for alias, name in found.items() if bound[alias] == 1}


def _binds(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name


class _Applied(ast.NodeTransformer):
    """Replaces ``F.apply`` by ``F``."""

    def __init__(self, functions: Collection[str]) -> None:
        self._functions = functions

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        owner = node.value
        if node.attr == "apply" and isinstance(owner, ast.Name) and owner.id in self._functions:
            return owner
        return self.generic_visit(node)


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


class _WithoutContext(ast.NodeTransformer):
    """Removes what is saved for the backward pass: ``ctx.save_for_backward(x)``, ``ctx.n = n``."""

    def __init__(self, context: str) -> None:
        self._context = context

    def _on_context(self, node: ast.AST) -> bool:
        return (dotted(node) or "").startswith(f"{self._context}.")

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Call) and self._on_context(node.value.func) else node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        node.targets = [target for target in node.targets if not self._on_context(target)]
        return node if node.targets else None

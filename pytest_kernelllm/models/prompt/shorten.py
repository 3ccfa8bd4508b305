"""Shortens statements of a file: drops docstrings, annotations, logging, the marker, and methods that nothing mentions."""

from __future__ import annotations

import ast
import copy
import logging
from collections.abc import Collection, Mapping
from typing import Any

from torch import nn

from kernelllm_judge.core.syntax import RemovingTransformer, chain_of, defaults, is_docstring, parameters
from pytest_kernelllm.models.prompt.files import is_library, is_ours, value_of


def shortened(
    statement: ast.stmt, namespace: Mapping[str, Any], mentioned: Collection[str]
) -> ast.stmt | None:
    """Returns a shortened copy of a top-level statement."""
    shortener = _Shortener(namespace, mentioned)
    found: ast.stmt | None = shortener.visit(copy.deepcopy(statement))
    return found


class _Shortener(RemovingTransformer):
    def __init__(self, namespace: Mapping[str, Any], mentioned: Collection[str]) -> None:
        self._namespace, self._mentioned = namespace, mentioned
        self._in_class = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._undecorate(node)
        for argument in parameters(node.args, variadic=True):
            argument.annotation = None
        node.returns = None
        return self._inside(node, in_class=False)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._undecorate(node)
        cls = self._namespace.get(node.name)
        if isinstance(cls, type) and issubclass(cls, nn.Module):
            node.body = [part for part in node.body if _is_needed(part, cls, self._mentioned)]
        return self._inside(node, in_class=True)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        logs = isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute)
        logger = value_of(node.value.func.value, self._namespace) if logs else None  # type: ignore[attr-defined]
        is_logging = logger is logging or isinstance(logger, logging.Logger | logging.LoggerAdapter)
        return None if is_docstring(node) or is_logging else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if self._in_class:  # a dataclass needs its fields
            node.annotation = ast.Name("object", ast.Load())
            return node
        plain = ast.Assign([node.target], node.value) if node.value else ast.Pass()
        return ast.copy_location(plain, node)

    def _inside(self, node: ast.AST, *, in_class: bool) -> ast.AST:
        outer, self._in_class = self._in_class, in_class
        self.generic_visit(node)
        self._in_class = outer
        return node

    def _undecorate(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        """Drops the marker, and the decorators of installed libraries, which register or wrap and compute nothing."""
        called = {d: d.func if isinstance(d, ast.Call) else d for d in node.decorator_list}
        values = {d: value_of(function, self._namespace) for d, function in called.items()}
        node.decorator_list = [
            d for d, value in values.items() if not is_ours(value) and not is_library(value)
        ]


_SILENT = frozenset(("__constants__", "__repr__", "__str__", "__getstate__", "__setstate__", "__slots__"))


def _is_needed(part: ast.stmt, cls: type, mentioned: Collection[str]) -> bool:
    """Whether a statement in the body of a module's class may matter to what it computes."""
    if isinstance(part, ast.Assign):
        return chain_of(part.targets[0]) != ("__constants__",)
    if not isinstance(part, ast.FunctionDef):
        return not (isinstance(part, ast.AnnAssign) and part.value is None)
    if any((chain_of(d) or ("",))[-1] == "overload" for d in part.decorator_list) or part.name in _SILENT:
        return False
    special = part.name == "forward" or (part.name.startswith("__") and part.name.endswith("__"))
    others = [base for base in cls.__mro__[1:] if base not in (nn.Module, object)]
    return special or part.name in mentioned or any(part.name in vars(base) for base in others)


def positional(arguments: ast.arguments) -> None:
    """Turns keyword-only parameters into positional ones, in the order of ``inputs.order``: those without a default first."""
    if arguments.vararg is not None or not arguments.kwonlyargs:
        return
    found: Mapping[str, ast.expr] = defaults(arguments)
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every.sort(key=lambda argument: argument.arg in found)
    arguments.posonlyargs, arguments.args, arguments.kwonlyargs, arguments.kw_defaults = [], every, [], []
    arguments.defaults = [found[argument.arg] for argument in every if argument.arg in found]

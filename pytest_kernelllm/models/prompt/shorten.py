"""Shortens statements of a file: drops docstrings, logging, the marker, and what needs more than PyTorch."""

from __future__ import annotations

import ast
import builtins
import copy
import logging
from collections.abc import Collection, Iterable, Mapping

from torch import nn

from kernelllm_judge.core.syntax import (
    Import,
    RemovingTransformer,
    chain_of,
    defaults,
    imports_of,
    is_docstring,
    parameters,
)
from pytest_kernelllm.models.prompt.files import File, is_importable, is_library, is_ours, value_of
from pytest_kernelllm.models.prompt.scopes import free_roots


def shortened(
    statement: ast.stmt, file: File, mentioned: Collection[str]
) -> tuple[ast.stmt | None, dict[str, Import]]:
    """Returns a shortened copy of a top-level statement, and what imports inside functions bind.

    Args:
        statement: the statement; of a ``torch.nn.Module`` the methods that nothing mentions are left out.
        file: the file in which it stands.
        mentioned: the attributes that the whole text mentions.
    """
    shortener = _Shortener(file, mentioned)
    return shortener.visit(copy.deepcopy(statement)), shortener.imports


class _Shortener(RemovingTransformer):
    def __init__(self, file: File, mentioned: Collection[str]) -> None:
        self._file, self._mentioned = file, mentioned
        self._namespace = file.namespace
        self._in_function = False
        self.imports: dict[str, Import] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._undecorate(node)
        for argument in parameters(node.args, variadic=True):
            argument.annotation = self._kept(argument.annotation)
        node.returns = self._kept(node.returns)
        outer, self._in_function = self._in_function, True
        self.generic_visit(node)
        self._in_function = outer
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._undecorate(node)
        cls = self._namespace.get(node.name)
        if isinstance(cls, type) and issubclass(cls, nn.Module):
            node.body = [part for part in node.body if _is_needed(part, cls, self._mentioned)]
        outer, self._in_function = self._in_function, False
        self.generic_visit(node)
        self._in_function = outer
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        logs = isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute)
        logger = value_of(node.value.func.value, self._namespace) if logs else None  # type: ignore[attr-defined]
        is_logging = logger is logging or isinstance(logger, logging.Logger | logging.LoggerAdapter)
        return None if is_docstring(node) or is_logging else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if not self._in_function:  # a dataclass needs its fields
            node.annotation = self._kept(node.annotation) or ast.Name("object", ast.Load())
            return node
        target = ast.Assign([node.target], node.value) if node.value else ast.Pass()
        return ast.copy_location(target, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return self._import(node)

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        return self._import(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> ast.AST | None:
        """Moves what a function imports of other files to the top of the text."""
        found = dict(imports_of(node))
        if not self._in_function or all(is_importable(self._file.absolute(each)) for each in found.values()):
            return node
        self.imports |= found
        return None

    def _undecorate(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        """Drops the marker, and the decorators of installed libraries, which register or wrap and compute nothing."""
        values = [
            value_of(d.func if isinstance(d, ast.Call) else d, self._namespace) for d in node.decorator_list
        ]
        kept = [not is_ours(value) and not is_library(value) for value in values]
        node.decorator_list = [d for d, keep in zip(node.decorator_list, kept, strict=True) if keep]

    def _kept(self, annotation: ast.expr | None) -> ast.expr | None:
        """Returns the annotation if it can be evaluated wherever PyTorch is installed, else None."""
        if annotation is None or any(
            isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(annotation)
        ):
            return None
        return annotation if all(map(self._is_known, free_roots(annotation))) else None

    def _is_known(self, name: str) -> bool:
        value = self._namespace.get(name, getattr(builtins, name, None))
        home = getattr(value, "__module__", None) or getattr(value, "__name__", None)
        return is_importable(home)


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


def positional(arguments: ast.arguments, passed: Iterable[str]) -> None:
    """Turns the keyword-only parameters in ``passed`` into positional ones, after those without a default.

    ``inputs.order`` lists values in the same order.
    """
    moved = set(passed) & {argument.arg for argument in arguments.kwonlyargs}
    if not moved:
        return
    found: Mapping[str, ast.expr] = defaults(arguments)
    kept = [*arguments.posonlyargs, *arguments.args, *(a for a in arguments.kwonlyargs if a.arg in moved)]
    kept.sort(key=lambda argument: argument.arg in found)
    rest = [argument for argument in arguments.kwonlyargs if argument.arg not in moved]
    arguments.posonlyargs, arguments.args, arguments.kwonlyargs = [], kept, rest
    arguments.defaults = [found[argument.arg] for argument in kept if argument.arg in found]
    arguments.kw_defaults = [found.get(argument.arg) for argument in rest]

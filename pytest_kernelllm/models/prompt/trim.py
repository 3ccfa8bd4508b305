"""Shortens code without changing what it computes: drops docstrings, logging, annotations and local imports."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from kernelllm_judge.core.syntax import RemovingTransformer, chain_of, defaults, parameters
from pytest_kernelllm.models.prompt.origins import MISSING, follow, is_annotation, is_importable
from pytest_kernelllm.models.prompt.scopes import free_names

NODE = TypeVar("NODE", bound=ast.AST)


class Trimmer(RemovingTransformer):
    """Shortens one piece of code in place; ``overlay`` holds the values that its removed local imports had bound."""

    def __init__(self, namespace: Mapping[str, Any], plain_class: bool = True) -> None:
        """Prepares to shorten code of one module.

        Args:
            namespace: the names of the code's module.
            plain_class: whether a class around the code may need its annotations, as a dataclass does and a
                ``torch.nn.Module`` does not.
        """
        self._namespace, self._plain = namespace, plain_class
        self._in_function = False
        self.overlay: dict[str, Any] = {}

    def trimmed(self, node: NODE) -> NODE | None:
        """Returns the shortened node, or None if nothing of it is left."""
        made: NODE | None = self.visit(node)
        return made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Keeps the annotations that work in the module."""
        for argument in parameters(node.args, variadic=True):
            argument.annotation = self._kept(argument.annotation)
        node.returns = self._kept(node.returns)
        outer, self._in_function = self._in_function, True
        self.generic_visit(node)
        self._in_function = outer
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Treats the body of a class inside a function as a class body again."""
        outer, self._in_function = self._in_function, False
        self.generic_visit(node)
        self._in_function = outer
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drops docstrings and logging."""
        if isinstance(node.value, ast.Constant) or self._is_logging(node.value):
            return None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Drops annotations of variables, but not of a class's fields, which a dataclass needs."""
        self.generic_visit(node)
        if self._plain and not self._in_function:
            node.annotation = self._kept(node.annotation) or ast.Name("object", ast.Load())
            return node
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        """Drops imports of modules whose contents are copied."""
        node.names = [alias for alias in node.names if is_importable(alias.name) or not self._taken(alias)]
        return node if node.names else None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        """Makes a relative import absolute and drops names that are copied."""
        node.module, node.level = absolute("." * node.level + (node.module or ""), self._namespace), 0
        if not is_importable(node.module):
            node.names = [alias for alias in node.names if not self._taken(alias, node.module)]
        return node if node.names else None

    def _taken(self, alias: ast.alias, source: str | None = None) -> bool:
        """Imports what a local import would and records it; False if that fails, as on a branch that is never taken."""
        try:
            module = importlib.import_module(source or alias.name)
            if source:
                found = getattr(module, alias.name, MISSING)
                value = importlib.import_module(f"{source}.{alias.name}") if found is MISSING else found
            else:
                value = module if alias.asname else importlib.import_module(alias.name.partition(".")[0])
        except Exception:
            return False
        self.overlay[alias.asname or (alias.name if source else alias.name.partition(".")[0])] = value
        return True

    def _kept(self, annotation: ast.expr | None) -> ast.expr | None:
        """Returns the annotation if it can be evaluated wherever PyTorch is installed, else None."""
        if annotation is None or any(
            isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(annotation)
        ):
            return None
        chains = [free.chain for free in free_names(annotation)]
        fine = all(is_annotation(follow(self._namespace, chain), chain[-1]) for chain in chains)
        return annotation if fine else None

    def _is_logging(self, node: ast.expr) -> bool:
        chain = chain_of(node.func) if isinstance(node, ast.Call) else None
        if chain is None or len(chain) < 2:
            return False
        value = follow(self._namespace, chain[:-1])
        return value is logging or isinstance(value, logging.Logger | logging.LoggerAdapter)


def absolute(name: str, namespace: Mapping[str, Any]) -> str:
    """Resolves a possibly relative module name from an import in ``namespace``."""
    if not name.startswith("."):
        return name
    package = namespace.get("__package__") or str(namespace.get("__name__", "")).rpartition(".")[0]
    return importlib.util.resolve_name(name, package)


def positional(arguments: ast.arguments, passed: Iterable[str]) -> None:
    """Turns the keyword-only parameters in ``passed`` into positional ones, after those without a default.

    ``order`` in ``inputs.py`` lists values in the same order.
    """
    moved = set(passed) & {argument.arg for argument in arguments.kwonlyargs}
    if not moved:
        return
    found = defaults(arguments)
    kept = [*arguments.posonlyargs, *arguments.args, *(a for a in arguments.kwonlyargs if a.arg in moved)]
    kept.sort(key=lambda argument: argument.arg in found)
    rest = [argument for argument in arguments.kwonlyargs if argument.arg not in moved]
    arguments.posonlyargs, arguments.args, arguments.kwonlyargs = [], kept, rest
    arguments.defaults = [found[argument.arg] for argument in kept if argument.arg in found]
    arguments.kw_defaults = [found.get(argument.arg) for argument in rest]

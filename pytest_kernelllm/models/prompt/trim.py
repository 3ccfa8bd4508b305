"""Code made shorter without changing what it computes: docstrings, logging, annotations, local imports."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pytest_kernelllm.core.syntax import RemovingTransformer, chain_of, defaults, parameters
from pytest_kernelllm.models.prompt.origins import MISSING, follow, is_annotation, is_importable
from pytest_kernelllm.models.prompt.scopes import free_names

NODE = TypeVar("NODE", bound=ast.AST)


class Trimmer(RemovingTransformer):
    """Shortens one piece of code, in place. ``overlay`` holds what its removed local imports had bound."""

    def __init__(self, namespace: Mapping[str, Any], plain_class: bool = True) -> None:
        """Set up for code of one module.

        Args:
            namespace: what the code's module holds.
            plain_class: the class around the code, if any, may need its annotations (a dataclass does; a
                ``torch.nn.Module`` does not).
        """
        self._namespace, self._plain = namespace, plain_class
        self._in_function = False
        self.overlay: dict[str, Any] = {}

    def trimmed(self, node: NODE) -> NODE | None:
        """The node, shorter; None if nothing of it is left."""
        made: NODE | None = self.visit(node)
        return made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Keep the annotations that work in the module."""
        for argument in parameters(node.args, variadic=True):
            argument.annotation = self._kept(argument.annotation)
        node.returns = self._kept(node.returns)
        outer, self._in_function = self._in_function, True
        self.generic_visit(node)
        self._in_function = outer
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """A class in a function is a class again."""
        outer, self._in_function = self._in_function, False
        self.generic_visit(node)
        self._in_function = outer
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drop docstrings and logging."""
        if isinstance(node.value, ast.Constant) or self._is_logging(node.value):
            return None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Drop annotations of variables; of a class's fields keep them, which may make a dataclass."""
        self.generic_visit(node)
        if self._plain and not self._in_function:
            node.annotation = self._kept(node.annotation) or ast.Name("object", ast.Load())
            return node
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        """Drop imports of modules that come along in the module itself."""
        node.names = [alias for alias in node.names if is_importable(alias.name) or not self._taken(alias)]
        return node if node.names else None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        """Make a relative import absolute; drop names that come along in the module itself."""
        node.module, node.level = absolute("." * node.level + (node.module or ""), self._namespace), 0
        if not is_importable(node.module):
            node.names = [alias for alias in node.names if not self._taken(alias, node.module)]
        return node if node.names else None

    def _taken(self, alias: ast.alias, source: str | None = None) -> bool:
        """Import here and now what a function would; False if that fails, as it may on a path that is not taken."""
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
        """The annotation, if it can be evaluated wherever PyTorch is installed."""
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
    """The full name of a module that code in ``namespace`` imports as ``name``."""
    if not name.startswith("."):
        return name
    package = namespace.get("__package__") or str(namespace.get("__name__", "")).rpartition(".")[0]
    return importlib.util.resolve_name(name, package)


def positional(arguments: ast.arguments, passed: Iterable[str]) -> None:
    """Let keyword-only parameters that are passed be given by position, after those that have no default.

    ``order`` in ``inputs.py`` gives values in this same order.
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

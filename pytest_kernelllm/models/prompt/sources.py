"""Finds the statements that define live classes and functions."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from kernelllm_judge.core.syntax import Import, first_line
from kernelllm_runtime.source.names import Bindings, module_names
from pytest_kernelllm.models.prompt.errors import NotPortable


class Sources:
    """Reads and parses each file once; the nodes that it returns are shared, so copy a node before changing it."""

    def __init__(self) -> None:
        """Reads nothing yet."""
        self._trees: dict[str, ast.Module | None] = {}
        self._bindings: dict[str, tuple[Mapping[str, Bindings], tuple[Import, ...]]] = {}
        self._submodules: dict[str, frozenset[str]] = {}

    def function(self, function: FunctionType) -> ast.FunctionDef | ast.Lambda:
        """Returns the ``def`` or ``lambda`` of an unwrapped function.

        Raises:
            NotPortable: there is no source, or it is not on the line that the function names.
        """
        code = function.__code__
        tree = self._tree(code.co_filename, function.__globals__)
        if tree is None:
            raise NotPortable(f"{_shown(function)} has no source file; write it in a module")
        if code.co_name == "<lambda>":
            return _lambda(tree, code, function)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.FunctionDef)
                and node.name == code.co_name
                and first_line(node) == code.co_firstlineno
            ):
                return node
        if any(
            isinstance(node, ast.AsyncFunctionDef) and node.name == code.co_name for node in ast.walk(tree)
        ):
            raise NotPortable(f"{_shown(function)} is asynchronous; write a plain function")
        raise NotPortable(
            f"{_shown(function)} is not on its line any more; run again without changing the file meanwhile"
        )

    def class_(self, cls: type) -> ast.ClassDef:
        """Returns the statement that defines a class.

        Raises:
            NotPortable: there is none.
        """
        tree = self.module(namespace_of(cls))
        nodes = [] if tree is None else [n for name, n in _classes(tree, "") if name == cls.__qualname__]
        lines = {
            (name, plain.__code__.co_firstlineno)
            for name, value in vars(cls).items()
            if isinstance(plain := inspect.unwrap(getattr(value, "__func__", value)), FunctionType)
        }
        for node in reversed(
            nodes
        ):  # the last definition of a name wins, unless the class has another one's methods
            methods = {
                (part.name, first_line(part)) for part in node.body if isinstance(part, ast.FunctionDef)
            }
            if methods & lines or not methods or len(nodes) == 1:
                return node
        raise NotPortable(
            f"the class {cls.__qualname__} has no source; write it as a class statement in a module"
        )

    def module(self, namespace: Mapping[str, Any]) -> ast.Module | None:
        """Returns the syntax tree of the module with a namespace, or None if it has no source."""
        file = namespace.get("__file__")
        return self._tree(file, namespace) if isinstance(file, str) else None

    def bindings(self, namespace: Mapping[str, Any]) -> tuple[Mapping[str, Bindings], tuple[Import, ...]]:
        """Returns what binds the names of a module, and its star imports."""
        file = str(namespace.get("__file__"))
        if file not in self._bindings:
            tree = self.module(namespace)
            self._bindings[file] = ({}, ()) if tree is None else module_names(tree)
        return self._bindings[file]

    def submodules(self, namespace: Mapping[str, Any]) -> frozenset[str]:
        """Returns the ``a.b.c`` of every ``import a.b.c`` in a module."""
        file = str(namespace.get("__file__"))
        if file not in self._submodules:
            tree = self.module(namespace)
            imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)] if tree else []
            plain = {alias.name for node in imports for alias in node.names if not alias.asname}
            self._submodules[file] = frozenset(name for name in plain if "." in name)
        return self._submodules[file]

    def _tree(self, file: str, namespace: Mapping[str, Any]) -> ast.Module | None:
        if file not in self._trees:
            lines = linecache.getlines(file, dict(namespace))
            try:
                self._trees[file] = ast.parse("".join(lines)) if lines else None
            except (SyntaxError, ValueError):
                self._trees[file] = None
        return self._trees[file]


def namespace_of(cls: type) -> Mapping[str, Any]:
    """Returns the names of the module in a class's ``__module__``."""
    module = sys.modules.get(cls.__module__)
    return {} if module is None else vars(module)


def _lambda(tree: ast.Module, code: CodeType, function: FunctionType) -> ast.Lambda:
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno and _same_code(node, code)
    ]
    if len({ast.dump(node) for node in found}) != 1:
        raise NotPortable(
            f"a lambda on line {code.co_firstlineno} cannot be told apart from others there; write a def"
        )
    return found[0]


def _same_code(node: ast.Lambda, code: CodeType) -> bool:
    made = compile(ast.Expression(node), "<lambda>", "eval").co_consts
    compiled = next(part for part in made if isinstance(part, CodeType))
    return (compiled.co_varnames, compiled.co_names) == (code.co_varnames, code.co_names) and [
        const for const in compiled.co_consts if not isinstance(const, CodeType)
    ] == [const for const in code.co_consts if not isinstance(const, CodeType)]


def _classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield prefix + child.name, child
            yield from _classes(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _classes(child, f"{prefix}{child.name}.<locals>.")
        else:
            yield from _classes(child, prefix)


def _shown(function: FunctionType) -> str:
    return f"the function {function.__qualname__}"

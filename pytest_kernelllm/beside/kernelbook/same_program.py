"""Names the program of a module, so that renamed and reformatted copies have the same name.

A data set for training must not hold the problems that models are tested on, nor a module twice. Two texts have one
name if their classes differ only in layout, comments, docstrings, annotations, the spelling of imports, and the names
that they give to classes, functions, parameters, variables and attributes of their own. Sizes of inputs do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from kernelllm_judge.core.program import UNREADABLE, parse, program_name
from kernelllm_judge.core.syntax import assigned_names, expression, imports_of, is_docstring
from pytest_kernelllm.models.prompt.scopes import free_roots

TEST_PROBLEMS = Path(__file__).with_name("kernelbench.txt")
"""KernelBench's problems, each a line ``name level1/19_ReLU.py``, as its checkout names them."""

_KEPT = frozenset(("__init__", "forward"))


@cache
def known_problems() -> dict[str, str]:
    """Returns KernelBench's problems, such as ``level1/19_ReLU.py``, by the names of their programs."""
    lines = TEST_PROBLEMS.read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in reversed(lines) if not line.startswith("#"))
    return {name: problem for name, problem in pairs}  # noqa: C416  # mypy takes dict(pairs) for one of lists


def same_program(code: str, class_name: str = "Model") -> str | None:
    """Returns the name of a class's program with all that it reaches in its text: 64 hex digits.

    None if the text cannot be read, or has no such class at its top level.
    """
    try:
        tree = parse(code)
        if not any(isinstance(node, ast.ClassDef) and node.name == class_name for node in tree.body):
            return None
        imports = {
            name: ".".join(filter(None, (found.module, found.name)))
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name, found in imports_of(node)
        }
        reached = ast.Module(_reached(tree, class_name), [])
        return program_name(ast.unparse(_Normal(reached, imports).visit(reached)))
    except UNREADABLE:
        return None


def _reached(tree: ast.Module, class_name: str) -> list[ast.stmt]:
    """The statements that a class needs, in their order; imports are written out where they are used."""
    body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    for node in body:
        if isinstance(node, ast.ClassDef):
            node.decorator_list = []  # the marker is one, and says how the class is called
    needed, found = {class_name}, set[int]()
    while more := {
        number
        for number, node in enumerate(body)
        if number not in found and needed.intersection(assigned_names(node))
    }:
        found |= more
        for number in more:
            needed |= free_roots(body[number])
    return [body[number] for number in sorted(found)]


def _numbered(kind: str, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{kind}_{number}" for number, name in enumerate(dict.fromkeys(names))}


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _bound_in(function: ast.FunctionDef) -> Iterator[str]:
    for node in _in_order(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


class _Normal(ast.NodeTransformer):
    """Removes what does not change the computation, writes imported names out, and numbers the text's own names.

    Names are numbered in the order in which they first appear: attributes and methods, what stands at the top level, and
    the parameters and variables of each function.
    """

    def __init__(self, tree: ast.Module, imports: Mapping[str, str]) -> None:
        nodes = list(_in_order(tree))
        stored = [n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
        methods = [
            n.name
            for c in nodes
            if isinstance(c, ast.ClassDef)
            for n in c.body
            if isinstance(n, ast.FunctionDef)
        ]
        self._imports = imports
        self._modules = {path.partition(".")[0] for path in imports.values()}
        self._attributes = _numbered("attribute", [n for n in (*stored, *methods) if n not in _KEPT])
        self._scopes = [_numbered("name", [name for node in tree.body for name in assigned_names(node)])]

    def _own(self, name: str) -> str:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), name)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        path = self._imports.get(node.id)
        if path is not None and path != node.id:
            return expression(path)
        node.id = self._own(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        root: ast.AST = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if not (isinstance(root, ast.Name) and root.id in self._modules):
            node.attr = self._attributes.get(node.attr, node.attr)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._own(node.arg))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        self.generic_visit(node)
        return ast.Assign([node.target], node.value, lineno=node.lineno) if node.value else None

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        self.generic_visit(node)
        return None if is_docstring(node) else node

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            node.args = []
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt | None:
        node.returns = None
        node.name = self._attributes.get(node.name, self._own(node.name))
        self._scopes.append(_numbered("local", _bound_in(node)))
        self.generic_visit(node)
        self._scopes.pop()
        only_super = [ast.unparse(each) for each in node.body] == ["super().__init__()"]
        if node.name == "__init__" and only_super and len(node.args.args) == 1:
            return None
        node.body = node.body or [ast.Pass()]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        node.name = self._own(node.name)
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

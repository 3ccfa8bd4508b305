"""Writes ``ModelNew``: a self-contained module with a kernel module's kernels and the class that launches them."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable

from kernelllm_judge.core.import_block import sorted_imports
from kernelllm_judge.core.program import parse
from kernelllm_judge.core.syntax import assigned_names, first_line, imports_of, is_docstring, rename
from pytest_kernelllm.beside.kernelbook.row import KernelBookError
from pytest_kernelllm.models.prompt.scopes import free_roots

_NO_ARGUMENTS = parse("def __init__(self):\n    super().__init__()")


def model_new(python_code: str, kernel_module: str) -> str:
    """Returns a module with ``ModelNew``: the constructor of ``Model``, and the kernel module's ``forward``.

    Raises:
        KernelBookError: the kernels call a method of the class, or a name means one thing here and another there.
    """
    reference, kernels = parse(python_code), parse(kernel_module)
    forward = next(n for n in kernels.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    model = next(n for n in reference.body if isinstance(n, ast.ClassDef) and n.name == "Model")
    launching = [n for n in kernels.body if n is not forward and not is_docstring(n) and not _is_supports(n)]
    constructor = _without_unused_methods(model, forward)
    needed = _reached(reference, constructor)
    taken = {name for node in launching if not _is_import(node) for name in assigned_names(node)}
    if clash := sorted(taken.intersection(name for node in needed for name in _bound(node))):
        raise KernelBookError(f"its kernels and its class both define {clash[0]}")
    rename(constructor, {"Model": "ModelNew"})
    methods = [ast.unparse(constructor).replace(":\n\n", ":\n", 1), _indented(forward, kernel_module)]
    parts = [_lines(node, python_code) for node in needed] + [
        _lines(node, kernel_module) for node in launching
    ]
    imports, body = sorted_imports("\n\n\n".join([*parts, "\n\n".join(methods)]))
    return imports + "\n\n" + body.strip("\n") + "\n"


def _without_unused_methods(model: ast.ClassDef, forward: ast.FunctionDef) -> ast.ClassDef:
    """Makes ``ModelNew`` of ``Model`` without ``forward``, and without the methods that only that called."""
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)}
    called = sorted(_attributes(forward).intersection(methods))
    if called:
        raise KernelBookError(f"its kernels call the class's method {called[0]}")
    waiting, kept = ["__init__"], set[str]()
    while waiting:
        name = waiting.pop()
        if name in methods and name not in kept:
            kept.add(name)
            waiting += _attributes(methods[name])
    body: list[ast.stmt] = [
        n
        for n in model.body
        if not is_docstring(n) and (n.name in kept if isinstance(n, ast.FunctionDef) else True)
    ]
    if not body:
        body = list(_NO_ARGUMENTS.body)
    return ast.ClassDef("ModelNew", model.bases, model.keywords, body, [])


def _attributes(node: ast.AST) -> set[str]:
    return {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def _reached(reference: ast.Module, constructor: ast.ClassDef) -> list[ast.stmt]:
    """The statements of the reference that the class still reads, in their order."""
    names, found = free_roots(constructor), set[int]()
    body = [n for n in reference.body if not (isinstance(n, ast.ClassDef) and n.name == "Model")]
    while more := {i for i, n in enumerate(body) if i not in found and names.intersection(_bound(n))}:
        found |= more
        names |= {name for i in more for name in free_roots(body[i])}
    return [body[i] for i in sorted(found)]


def _bound(node: ast.stmt) -> Iterable[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [name for name, _ in imports_of(node)]
    return assigned_names(node)


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_supports(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["SUPPORTS"]


def _lines(node: ast.stmt, text: str) -> str:
    """The lines of a statement as they stand in its text."""
    return "\n".join(text.split("\n")[first_line(node) - 1 : node.end_lineno])


def _indented(function: ast.FunctionDef, text: str) -> str:
    """A function as a method, as it stands in its text."""
    return textwrap.indent(_lines(function, text), "    ")

"""Moves kernels and functions out of classes that only hold them: ``class Kernels`` with static methods."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from kernelllm_judge.core.syntax import dotted, free_name, is_docstring, is_jitted


def without_namespaces(tree: ast.Module) -> ast.Module:
    """Moves jitted functions of all classes, and all of classes without instances, to top level, in place."""
    taken = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    moved: dict[str, str] = {}
    body: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            body += _moved(node, taken, moved)
        body.append(node)
    if moved:
        tree.body = body
        Renamed(moved).visit(tree)
    return tree


def _moved(cls: ast.ClassDef, taken: set[str], moved: dict[str, str]) -> Iterator[ast.stmt]:
    """Takes what can stand alone out of a class; ``moved`` receives the new names, by ``Class.name``."""
    namespace = not cls.bases and all(_stands_alone(node) for node in cls.body)
    for node in list(cls.body):
        if isinstance(node, ast.FunctionDef) and (is_jitted(node) or namespace):
            old = node.name
            node.decorator_list = [d for d in node.decorator_list if dotted(d) != "staticmethod"]
            node.name = new = free_name(old, taken)
        elif namespace and isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            old = node.targets[0].id
            node.targets[0].id = new = free_name(f"{cls.name}_{old}", taken)
        else:
            continue
        taken.add(new)
        moved[f"{cls.name}.{old}"] = new
        if isinstance(node, ast.FunctionDef) and is_jitted(node):
            moved[f"self.{old}"] = new
        cls.body.remove(node)
        yield node
    if not cls.body:
        cls.body.append(ast.Pass())


def _stands_alone(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return is_jitted(node) or any(dotted(d) == "staticmethod" for d in node.decorator_list)
    single = isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    return single or is_docstring(node) or isinstance(node, ast.Pass)


class Renamed(ast.NodeTransformer):
    """Replaces dotted names that are read by other names: ``Kernels.add`` by ``add``."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """``names``: the new names by the dotted ones."""
        self._names = names

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Called by ``ast.NodeTransformer``."""
        name = self._names.get(dotted(node) or "")
        if name is not None and isinstance(node.ctx, ast.Load):
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        return self.generic_visit(node)

"""Brings what a completion's constructors make together with its classes' methods."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelllm_judge.core.syntax import dotted, free_name, parameters, rename
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.modelnew.settings import Built, Setting


def whole_class(cls: ast.ClassDef, top: Mapping[str, ast.stmt]) -> ast.ClassDef:
    """Returns a class with the members of its bases, without these bases.

    What it overrides is kept as ``_Base_name``, which ``super().name(...)`` then calls.
    """
    bases = [top.get(dotted(base) or "") for base in cls.bases]
    own = [base for base in bases if isinstance(base, ast.ClassDef) and base is not cls]
    if not own:
        return cls
    base = whole_class(own[0], {name: node for name, node in top.items() if node is not cls})
    result = copy.deepcopy(cls)
    mine = {node.name for node in result.body if isinstance(node, ast.FunctionDef)}
    result.body = [*(n for n in copy.deepcopy(base.body) if getattr(n, "name", "") not in mine), *result.body]
    result.bases = []
    return result


@dataclass(frozen=True)
class Instance:
    """A module: its path, the methods of its class, and what its constructor sets."""

    path: str
    """The dotted path from ``self``: ``""`` for ModelNew itself, ``norm``, ``block.norm``."""
    methods: Mapping[str, ast.FunctionDef]
    """The methods by name; the first parameter is called ``self``."""
    settings: Mapping[str, Setting]
    functions: Mapping[str, str]
    """The name of the top-level function that each method becomes, by method."""
    properties: frozenset[str] = frozenset()
    """The methods that are read like attributes."""


def instances(top: Mapping[str, ast.stmt], modules: Sequence[Built], taken: set[str]) -> dict[str, Instance]:
    """Returns ``ModelNew`` and its submodules by path."""
    found: dict[str, Instance] = {}
    for built in modules:
        name = built.cls if built.path else "ModelNew"
        found_class = top.get(name)
        if not isinstance(found_class, ast.ClassDef):
            raise RenderError(
                f"self.{built.path} is of the class {name}, which the completion does not define."
            )
        cls = whole_class(found_class, top)
        functions = [
            node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name != "__init__"
        ]
        methods = {node.name: _with_self(node, name) for node in functions}
        if "forward" not in methods:
            raise RenderError(f"Line {cls.lineno}: {name} has no forward.")
        found[built.path] = Instance(
            built.path,
            methods,
            built.settings,
            {method: _function_name(built.path, method, taken) for method in methods},
            frozenset(
                node.name
                for node in functions
                if any((dotted(each) or "").endswith("property") for each in node.decorator_list)
            ),
        )
    return found


def _function_name(path: str, method: str, taken: set[str]) -> str:
    if (path, method) == ("", "forward"):
        return "forward"
    words = [*path.split("."), "" if path and method == "forward" else method.strip("_")]
    name = free_name("_" + "_".join(word for word in words if word), taken)
    taken.add(name)
    return name


def _with_self(method: ast.FunctionDef, cls: str) -> ast.FunctionDef:
    """Copies a method so that its first parameter is called ``self``, also if it is a static method."""
    method = copy.deepcopy(method)
    if any(dotted(decorator) == "staticmethod" for decorator in method.decorator_list):
        method.args.args.insert(0, ast.arg("self"))
    if not parameters(method.args):
        raise RenderError(f"Line {method.lineno}: {method.name} has no self parameter.")
    # `ModelNew.name` is `self.name` inside ModelNew.
    rename(method, {parameters(method.args)[0].arg: "self", cls: "self"})
    method.decorator_list = []
    return method

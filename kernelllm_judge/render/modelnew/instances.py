"""Finds the modules that a completion would build: ``ModelNew`` and submodules of its other classes."""

from __future__ import annotations

import ast
import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelllm_judge.core.syntax import dotted, free_name, parameters, rename
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.modelnew.classes import whole_class
from kernelllm_judge.render.modelnew.constructor import read_constructor
from kernelllm_judge.render.modelnew.settings import Setting
from kernelllm_judge.render.modelnew.spelling import Canonical
from kernelllm_judge.render.modelnew.values import KnownValue, Unknown, evaluate


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


def instances(
    top: Mapping[str, ast.stmt],
    spelling: Canonical,
    constants: Mapping[str, KnownValue],
    args: Sequence[KnownValue],
    kwargs: Mapping[str, KnownValue],
    taken: set[str],
) -> dict[str, Instance]:
    """Returns ``ModelNew`` and its submodules by path.

    Args:
        top: the completion's top-level definitions.
        spelling: lenient spelling, for constructors.
        constants: the top-level constants.
        args: the positional constructor arguments of ModelNew.
        kwargs: the keyword arguments.
        taken: names that functions may not have; the new functions are added.

    Raises:
        RenderError: a class has no forward, or a method has no ``self``.
    """
    found: dict[str, Instance] = {}
    todo: list[tuple[str, str, Sequence[KnownValue], Mapping[str, KnownValue]]] = [
        ("", "ModelNew", args, kwargs)
    ]
    classes = {name for name, node in top.items() if isinstance(node, ast.ClassDef)}
    functions_ = {name for name, node in top.items() if isinstance(node, ast.FunctionDef)}
    constants = {**constants, **dict(_of_classes(top, constants))}
    while todo:
        path, name, args, kwargs = todo.pop(0)
        found_class = top[name]
        assert isinstance(found_class, ast.ClassDef)
        cls = whole_class(found_class, top)
        if path.count(".") > 8:
            raise RenderError(f"Line {cls.lineno}: the class {name} contains itself.")
        methods = {n.name: _with_self(n, name) for n in cls.body if isinstance(n, ast.FunctionDef)}
        if "forward" not in methods:
            raise RenderError(f"Line {cls.lineno}: {name} has no forward.")
        init = spelling.statement(_constructor(cls, methods.pop("__init__", None)))
        assert isinstance(init, ast.FunctionDef)
        spelt = {method: spelling.statement(copy.deepcopy(node)) for method, node in methods.items()}
        callable_ = {method: node for method, node in spelt.items() if isinstance(node, ast.FunctionDef)}
        settings = read_constructor(init, constants, args, kwargs, classes, functions_, callable_)
        functions = {method: _function_name(path, method, taken) for method in methods}
        properties = frozenset(n.name for n in cls.body if isinstance(n, ast.FunctionDef) and _is_property(n))
        found[path] = Instance(path, methods, settings, functions, properties)
        for attribute, setting in settings.items():
            if setting.kind == "module":
                below = f"{path}.{attribute}" if path else attribute
                todo.append((below, setting.layer, setting.args, dict(setting.kwargs)))
    return found


def _of_classes(
    top: Mapping[str, ast.stmt], constants: Mapping[str, KnownValue]
) -> Iterator[tuple[str, KnownValue]]:
    """Yields the constants in class bodies, such as ``Block.expansion``."""
    for name, node in top.items():
        for assign in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(assign, ast.Assign) and isinstance(assign.targets[0], ast.Name):
                with contextlib.suppress(Unknown):
                    yield f"{name}.{assign.targets[0].id}", evaluate(assign.value, constants)


def _is_property(method: ast.FunctionDef) -> bool:
    return any((dotted(decorator) or "").endswith("property") for decorator in method.decorator_list)


def _function_name(path: str, method: str, taken: set[str]) -> str:
    if (path, method) == ("", "forward"):
        return "forward"
    words = [*path.split("."), "" if path and method == "forward" else method.strip("_")]
    name = free_name("_" + "_".join(word for word in words if word), taken)
    taken.add(name)
    return name


def _constructor(cls: ast.ClassDef, init: ast.FunctionDef | None) -> ast.FunctionDef:
    """Returns ``__init__`` with the assignments of the class body, which also set attributes, before it."""
    whole = copy.deepcopy(init) if init else ast.parse("def __init__(self): pass").body[0]
    assert isinstance(whole, ast.FunctionDef)
    class_level = [copy.deepcopy(node) for node in cls.body if isinstance(node, ast.Assign)]
    for assign in class_level:
        names = [target.id for target in assign.targets if isinstance(target, ast.Name)]
        assign.targets = [ast.Attribute(ast.Name("self", ast.Load()), name, ast.Store()) for name in names]
    whole.body = [*class_level, *whole.body]
    return whole


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

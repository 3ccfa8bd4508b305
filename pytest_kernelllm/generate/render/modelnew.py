"""Turns a hand-style answer (Triton kernels, wrapper functions and a ``ModelNew`` class) into a kernel module.

Only form changes: what ``ModelNew.forward`` reaches is kept, the class becomes top-level functions on the
target's own instance, imports are spelt one way and devices follow the inputs. Nothing is executed.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from pytest_kernelllm.discover.live import LiveTarget
from pytest_kernelllm.generate.extract import parse
from pytest_kernelllm.generate.render.constructor import read_constructor
from pytest_kernelllm.generate.render.describe import describe
from pytest_kernelllm.generate.render.devices import OnInputDevice, is_device, tensor_parameter
from pytest_kernelllm.generate.render.errors import RenderError
from pytest_kernelllm.generate.render.names import Canonical, imports, without_annotations
from pytest_kernelllm.generate.render.rendered import Rendered
from pytest_kernelllm.generate.render.selfmap import SelfMap
from pytest_kernelllm.generate.render.signature import rename_locals, with_target_parameters
from pytest_kernelllm.generate.render.syntax import bound_names, global_loads, is_jitted, parameters
from pytest_kernelllm.generate.render.values import Known, Unknown, evaluate
from pytest_kernelllm.records import Completion, TensorSpec

_RESERVED = frozenset({"forward", "SUPPORTS", "self"})


def translate(source: str, live: LiveTarget, completion: Completion) -> Rendered:
    """The kernel module that a hand-style answer amounts to.

    Args:
        source: Python code that parses, with a class ``ModelNew``.
        live: the target; its cases' domains become ``SUPPORTS``.
        completion: where the code came from.

    Raises:
        RenderError: something cannot be carried over; the text names the attribute or the line.
    """
    tree = parse(source)
    if isinstance(tree, str):
        raise RenderError(f"The code does not parse: {tree}.")
    answer = _Answer(source, without_annotations(tree), live)
    body = answer.body()
    domains = tuple(case.domain for case in live.cases)
    return Rendered(body, describe(live, answer.kernels), domains)


class _Answer:
    """One completion's code, taken apart."""

    def __init__(self, source: str, tree: ast.Module, live: LiveTarget) -> None:
        self.kernels: list[str] = []
        self._lines, self._live = source.split("\n"), live
        self._domain = live.cases[0].domain
        self._imports = imports(tree)
        self._top = _definitions(tree)
        model = self._top.pop("ModelNew", None)
        if not isinstance(model, ast.ClassDef):
            raise RenderError("The completion defines no class `ModelNew`.")
        self._members = _members(model)
        if not isinstance(self._members.get("forward"), ast.FunctionDef):
            raise RenderError(f"Line {model.lineno}: ModelNew has no forward.")
        self._methods = self._method_names()
        self._devices = {n for n, d in self._top.items() if isinstance(d, ast.Assign) and is_device(d.value)}
        literals = {n: d.value for n, d in self._top.items() if isinstance(d, ast.Assign) and _is_literal(d.value)}
        renamed = {name: _free(f"_{name}", self._top) for name in _RESERVED & set(self._top)}
        self._spelling = Canonical(self._imports, self._top, renamed, literals)
        self._self_map = SelfMap(self._settings(), self._methods, self._domain)

    def body(self) -> str:
        """Everything that ``forward`` reaches, in the order of the source, then methods, then ``forward``."""
        kept: dict[str, str] = {}
        methods: dict[str, str] = {}
        todo = ["self.forward"]
        while todo:
            name = todo.pop()
            if name.startswith("self."):
                if name not in methods:
                    raw = self._members[name.removeprefix("self.")]
                    methods[name] = self._method(name.removeprefix("self."))
                    todo += self._reached(raw)
            elif name not in kept:
                kept[name] = self._statement(name)
                todo += self._reached(self._top[name])
        forward = methods.pop("self.forward")
        ordered = [kept[name] for name in self._top if name in kept]
        text = "\n\n\n".join([*dict.fromkeys(ordered), *methods.values(), forward]) + "\n"
        return f"import math\n\n\n{text}" if "math." in text and _uses_math(text) else text

    def _reached(self, node: ast.stmt) -> list[str]:
        names = [load.id for load in global_loads(node) if load.id in self._top]
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
                is_self = inner.value.id in (_first_parameter(node), "ModelNew")
                if is_self and inner.attr in self._methods:
                    names.append(f"self.{inner.attr}")
        return names

    def _statement(self, name: str) -> str:
        node = self._top[name]
        if isinstance(node, ast.ClassDef):
            raise RenderError(
                f"Line {node.lineno}: forward uses the class {name}; a kernel module holds kernels and functions only."
            )
        if not isinstance(node, ast.FunctionDef | ast.Assign | ast.AnnAssign):
            raise RenderError(f"Line {node.lineno}: `{name}` is set under a condition or in a loop at top level.")
        new = self._spelling.statement(copy.deepcopy(node))
        if is_jitted(node):
            self.kernels.append(name)
        elif isinstance(new, ast.FunctionDef):
            new = OnInputDevice(tensor_parameter(new), self._devices).visit(new)
        return self._text(node, new)

    def _method(self, name: str) -> str:
        node = self._members[name]
        assert isinstance(node, ast.FunctionDef)
        new = self._spelling.statement(_with_self(copy.deepcopy(node)))
        assert isinstance(new, ast.FunctionDef)
        tensor = tensor_parameter(new)
        if name == "forward":
            inputs = [n for n, spec in self._domain.inputs.items() if isinstance(spec, TensorSpec)]
            new = with_target_parameters(new, self._live.signature, self._domain.inputs)
            tensor = inputs[0] if inputs else tensor
        else:
            new.name = self._methods[name]
            new.decorator_list = []
        new = OnInputDevice(tensor, self._devices).visit(new)
        new.body = [self._self_map.visit(statement) for statement in new.body]
        return ast.unparse(ast.fix_missing_locations(new))

    def _text(self, old: ast.stmt, new: ast.stmt) -> str:
        """As the completion wrote it, comments and all, unless something had to change."""
        if ast.dump(old) == ast.dump(new):
            first = min([old.lineno, *(d.lineno for d in getattr(old, "decorator_list", []))])
            text = "\n".join(self._lines[first - 1 : old.end_lineno])
            again = parse(text)
            if isinstance(again, ast.Module) and [ast.dump(s) for s in again.body] == [ast.dump(old)]:
                return text
        return ast.unparse(ast.fix_missing_locations(new))

    def _method_names(self) -> dict[str, str]:
        functions = [n for n, d in self._members.items() if isinstance(d, ast.FunctionDef) and n != "__init__"]
        taken = {*self._top, *_RESERVED}
        return {n: n if n == "forward" else _free(n if n.startswith("_") else f"_{n}", taken) for n in functions}

    def _settings(self) -> dict[str, Setting]:
        constants: dict[str, Known] = {}
        for name, node in self._top.items():
            if isinstance(node, ast.Assign):
                _learn(constants, name, node.value)
        class_constants = [(n, d) for n, d in self._members.items() if isinstance(d, ast.Assign)]
        class_level = {}
        for name, node in class_constants:
            _learn(constants, name, node.value)
            ...
        raise NotImplementedError

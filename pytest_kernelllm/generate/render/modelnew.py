"""Turns a hand-style answer (kernels, wrapper functions, a ``ModelNew`` class) into a kernel module.

Only form changes: what ``ModelNew.forward`` reaches is kept, the class becomes top-level functions on the
target's own instance, imports are spelt one way and devices follow the inputs. Nothing is executed.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection
from typing import TYPE_CHECKING

from pytest_kernelllm.generate.extract import parse
from pytest_kernelllm.generate.render.autograd import as_functions, is_autograd_function
from pytest_kernelllm.generate.render.constructor import Setting, read_constructor
from pytest_kernelllm.generate.render.describe import describe
from pytest_kernelllm.generate.render.devices import OnInputDevice, is_device, tensor_parameter
from pytest_kernelllm.generate.render.errors import RenderError
from pytest_kernelllm.generate.render.lower import device_functions
from pytest_kernelllm.generate.render.rendered import Rendered
from pytest_kernelllm.generate.render.selfmap import SelfMap
from pytest_kernelllm.generate.render.signature import rename_locals, with_target_parameters
from pytest_kernelllm.generate.render.spelling import Canonical, imports, without_annotations
from pytest_kernelllm.generate.render.standins import with_stand_ins
from pytest_kernelllm.generate.render.syntax import (
    bound_names,
    dotted,
    global_loads,
    is_jitted,
    name_chain,
    parameters,
)
from pytest_kernelllm.generate.render.values import Known, Unknown, evaluate
from pytest_kernelllm.records import Completion, TensorSpec

if TYPE_CHECKING:
    from pytest_kernelllm.discover.live import LiveTarget

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
        self._stand_ins: set[str] = set()
        self._lines, self._live = source.split("\n"), live
        self._domain = live.cases[0].domain
        self._imports = imports(tree)
        self._top = _definitions(tree if self._domain.grad else as_functions(tree, self._imports))
        model = self._top.pop("ModelNew", None)
        if not isinstance(model, ast.ClassDef):
            raise RenderError("The completion defines no class `ModelNew`.")
        self._members = _members(model)
        if "forward" not in self._members:
            raise RenderError(f"Line {model.lineno}: ModelNew has no forward.")
        self._methods = self._method_names()
        self._devices = {n for n, d in self._top.items() if isinstance(d, ast.Assign) and is_device(d.value)}
        literals = {
            n: d.value for n, d in self._top.items() if isinstance(d, ast.Assign) and _is_literal(d.value)
        }
        self._renamed = {name: _free(f"_{name}", self._top) for name in _RESERVED & set(self._top)}
        self._spelling = Canonical(self._imports, self._top, self._renamed, literals)
        self._self_map = SelfMap(self._settings(model), self._methods, self._domain)

    def body(self) -> str:
        """Everything that ``forward`` reaches, in the order of the source, then methods, then ``forward``."""
        new_names = {self._renamed.get(name, name): name for name in self._top}
        functions = {new: name for name, new in self._methods.items()}
        kept: dict[str, ast.stmt] = {}
        methods: dict[str, ast.stmt] = {"forward": self._method("forward")}
        todo = [methods["forward"]]
        while todo:
            for load in global_loads(todo.pop()):
                if (name := functions.get(load.id)) and name not in methods:
                    todo.append(methods.setdefault(name, self._method(name)))
                elif (name := new_names.get(load.id)) and name not in kept:
                    todo.append(kept.setdefault(name, self._statement(name)))
        constants = [
            self._text(name, kept[name]) for name in self._top if isinstance(kept.get(name), ast.Assign)
        ]
        helpers = [
            self._text(name, kept[name]) for name in self._top if isinstance(kept.get(name), ast.FunctionDef)
        ]
        own = [ast.unparse(methods[name]) for name in self._members if name in methods and name != "forward"]
        parts = ["\n".join(constants)] if constants else []
        parts += [*device_functions(self._stand_ins), *helpers, *own, ast.unparse(methods["forward"])]
        text = "\n\n\n".join(parts) + "\n"
        return f"import math\n\n\n{text}" if _uses_math(text) else text

    def _statement(self, name: str) -> ast.stmt:
        node = self._top[name]
        if isinstance(node, ast.ClassDef) and is_autograd_function(node, self._imports):
            return self._autograd_function(copy.deepcopy(node))
        if isinstance(node, ast.ClassDef):
            raise RenderError(
                f"Line {node.lineno}: forward uses the class {name}; "
                "a kernel module holds kernels and functions only."
            )
        if not isinstance(node, ast.FunctionDef | ast.Assign | ast.AnnAssign):
            raise RenderError(
                f"Line {node.lineno}: `{name}` is set under a condition or in a loop at top level."
            )
        new = self._spelling.statement(copy.deepcopy(node))
        if isinstance(new, ast.FunctionDef):
            new.name = self._renamed.get(name, name)
            if is_jitted(new):
                return self._kernel(new)
            new = OnInputDevice(tensor_parameter(new), self._devices).visit(new)
        return ast.fix_missing_locations(new)

    def _autograd_function(self, cls: ast.ClassDef) -> ast.ClassDef:
        """Stays a class where gradients are wanted."""
        for index, node in enumerate(cls.body):
            new = self._spelling.statement(node)
            tensor = tensor_parameter(new) if isinstance(new, ast.FunctionDef) else None
            cls.body[index] = OnInputDevice(tensor, self._devices).visit(new)
        cls.bases = [name_chain("torch.autograd.Function")]
        return ast.fix_missing_locations(cls)

    def _kernel(self, kernel: ast.FunctionDef) -> ast.FunctionDef:
        """A kernel or device function, with functions that stand in for what ``tl`` has not."""
        self.kernels.append(kernel.name)
        kernel, stand_ins = with_stand_ins(kernel, self._top)
        self._stand_ins |= stand_ins
        return kernel

    def _method(self, name: str) -> ast.FunctionDef:
        new = self._spelling.statement(_with_self(copy.deepcopy(self._members[name])))
        assert isinstance(new, ast.FunctionDef)
        tensor = tensor_parameter(new)
        if name == "forward":
            inputs = [n for n, spec in self._domain.inputs.items() if isinstance(spec, TensorSpec)]
            new = with_target_parameters(new, self._live.signature, self._domain.inputs)
            tensor = inputs[0] if inputs else tensor
        new.name = self._methods[name]
        new.decorator_list = []
        OnInputDevice(tensor, self._devices).visit(new)
        new.body = [self._self_map.visit(statement) for statement in new.body]
        return ast.fix_missing_locations(new)

    def _text(self, name: str, new: ast.stmt) -> str:
        """A definition as the completion wrote it, comments and all, unless something had to change."""
        old = self._top[name]
        if ast.dump(old) == ast.dump(new):
            first = min([old.lineno, *(d.lineno for d in getattr(old, "decorator_list", []))])
            text = "\n".join(self._lines[first - 1 : old.end_lineno])
            again = parse(text)
            if isinstance(again, ast.Module) and [ast.dump(s) for s in again.body] == [ast.dump(old)]:
                return text
        return ast.unparse(ast.fix_missing_locations(new))

    def _method_names(self) -> dict[str, str]:
        functions = [name for name in self._members if name != "__init__"]
        taken = {*self._top, *_RESERVED}
        return {
            n: n if n == "forward" else _free(n if n.startswith("_") else f"_{n}", taken) for n in functions
        }

    def _settings(self, model: ast.ClassDef) -> dict[str, Setting]:
        """What the class body and the constructor set on ``self``."""
        constants: dict[str, Known] = {}
        for name, definition in self._top.items():
            if isinstance(definition, ast.Assign):
                try:
                    constants[name] = evaluate(definition.value, constants)
                except Unknown:
                    continue
        init = self._members.get("__init__", ast.parse("def __init__(self): pass").body[0])
        assert isinstance(init, ast.FunctionDef)
        init = _with_self(copy.deepcopy(init))
        class_level = [copy.deepcopy(node) for node in model.body if isinstance(node, ast.Assign)]
        for assign in class_level:
            assign.targets = [_on_self(target) for target in assign.targets]
        init.body = [*class_level, *init.body]
        read = Canonical(self._imports, self._top, {}, {}, lenient=True).statement(init)
        assert isinstance(read, ast.FunctionDef)
        arguments = self._live.init_arguments(self._live.cases[0])
        return read_constructor(read, constants, arguments.args, arguments.kwargs)


class _ThroughSelf(ast.NodeTransformer):
    """``ModelNew.name`` is ``self.name``."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name("self", node.ctx), node) if node.id == "ModelNew" else node


def _with_self(method: ast.FunctionDef) -> ast.FunctionDef:
    """The method with a first parameter called ``self``, also where it was a static method."""
    _ThroughSelf().visit(method)
    decorators = {dotted(decorator) for decorator in method.decorator_list}
    if "staticmethod" in decorators:
        method.args.args.insert(0, ast.arg("self"))
    first = _first_parameter(method)
    if first is None:
        raise RenderError(f"Line {method.lineno}: {method.name} has no self parameter.")
    if first != "self":
        rename_locals(method, {first: "self"})
    return method


def _on_self(target: ast.expr) -> ast.expr:
    return (
        ast.Attribute(ast.Name("self", ast.Load()), target.id, ast.Store())
        if isinstance(target, ast.Name)
        else target
    )


def _first_parameter(node: ast.AST) -> str | None:
    names = parameters(node.args) if isinstance(node, ast.FunctionDef) else []
    return names[0].arg if names else None


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """What each top-level name was last bound to, by a definition, an assignment or a compound statement."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names = {node.name}
        elif isinstance(node, ast.Import | ast.ImportFrom | ast.Expr):
            continue
        else:
            names = bound_names(node)
        for name in names:
            found.pop(name, None)  # a later definition also takes the later place
            found[name] = node
    return found


def _members(model: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}


def _is_literal(node: ast.expr) -> bool:
    try:
        return isinstance(evaluate(node, {}).value, bool | int | float)
    except Unknown:
        return False


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _uses_math(text: str) -> bool:
    tree = ast.parse(text)
    return any(isinstance(node, ast.Name) and node.id == "math" for node in ast.walk(tree))

"""Finds what a completion's ``__init__`` sets on ``self``, without executing it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pytest_kernelllm.core.records import Scalar
from pytest_kernelllm.core.syntax import call_name, defaults, dotted, expression, parameters
from pytest_kernelllm.generate.render.modelnew.values import UNKNOWN, KnownValue, Unknown, evaluate

_SHAPED = frozenset({"ones", "zeros", "empty", "rand", "randn", "full", "Tensor"})
"""Functions of torch that make a tensor from the shape in their first arguments."""


@dataclass(frozen=True)
class Setting:
    """An attribute that the constructor sets."""

    kind: Literal["value", "tensor", "layer", "module", "other"]
    line: int
    text: str
    """The right-hand side, for messages."""
    value: KnownValue | None = None
    shape: tuple[int, ...] | None = None
    """The shape of a tensor, if it is known."""
    layer: str = ""
    """The class of a layer, such as ``torch.nn.Linear``; of a ``module``, a class of the completion."""
    args: tuple[KnownValue, ...] = ()
    """The arguments with which a module of a class of the completion is built."""
    kwargs: tuple[tuple[str, KnownValue], ...] = ()


@dataclass
class Constructor:
    """Follows a constructor's statements and records the last value of each attribute."""

    names: dict[str, KnownValue]
    """Known values by name: arguments, local variables, constants of the file, ``self.<name>``."""
    classes: Collection[str] = ()
    """The names of the completion's classes."""
    methods: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    """The other methods of the class, which the constructor may call."""
    settings: dict[str, Setting] = field(default_factory=dict)
    conditions: tuple[Scalar, ...] = ()
    """The constructor arguments that decided which branch is followed."""
    depth: int = 0
    """The number of nested method calls that are being followed."""

    def walk(self, statements: Iterable[ast.stmt]) -> None:
        """Follows statements in order."""
        for statement in statements:
            self._take(statement)

    def _take(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._set(target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._set(statement.target, statement.value)
        elif isinstance(statement, ast.AugAssign):
            before = expression(ast.unparse(statement.target))
            changed = ast.BinOp(before, statement.op, statement.value)
            self._set(statement.target, ast.copy_location(changed, statement))
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._call(statement.value)
        elif isinstance(statement, ast.If):
            self._branch(statement)
        elif not isinstance(statement, ast.Expr | ast.Pass | ast.Assert | ast.Raise):
            self._forget(statement)

    def _set(self, target: ast.expr, value: ast.expr) -> None:
        if (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        ):
            for one, its_value in zip(target.elts, value.elts, strict=True):
                self._set(one, its_value)
            return
        name = dotted(target)
        if name is None:
            return
        setting = self._setting(value)
        if setting.value is not None and self.conditions:
            known = KnownValue(setting.value.value, setting.value.read + self.conditions)
            setting = replace(setting, value=known)
        if name.startswith("self."):
            self.settings[name.removeprefix("self.")] = setting
        self.names.pop(name, None)
        if setting.value is not None:
            self.names[name] = setting.value

    def _setting(self, node: ast.expr) -> Setting:
        line, text = node.lineno, ast.unparse(node)
        try:
            return Setting("value", line, text, value=evaluate(node, self.names))
        except Unknown:
            pass
        if not isinstance(node, ast.Call):
            return Setting("other", line, text)
        function = call_name(node)
        if function in self.classes:
            args = tuple(self._argument(item) for item in node.args)
            kwargs = tuple((k.arg, self._argument(k.value)) for k in node.keywords if k.arg)
            return Setting("module", line, text, layer=function, args=args, kwargs=kwargs)
        if function.endswith("nn.Parameter") or function in ("Parameter", "torch.Parameter"):
            inner = self._setting(node.args[0]) if node.args else None
            return Setting("tensor", line, text, shape=inner.shape if inner else None)
        if function.startswith("torch.nn.") and function.rpartition(".")[2][:1].isupper():
            return Setting("layer", line, text, layer=function)
        if function.startswith("torch."):
            return Setting("tensor", line, text, shape=self._shape(function, node.args))
        return Setting("other", line, text)

    def _argument(self, node: ast.expr) -> KnownValue:
        try:
            return evaluate(node, self.names)
        except Unknown:
            return UNKNOWN

    def _shape(self, function: str, arguments: Sequence[ast.expr]) -> tuple[int, ...] | None:
        if function.removeprefix("torch.") not in _SHAPED or not arguments:
            return None
        try:
            sizes = [evaluate(node, self.names).value for node in arguments]
        except Unknown:
            return None
        shape = sizes[0] if isinstance(sizes[0], tuple) else tuple(sizes)
        if function == "torch.full":
            shape = sizes[0] if isinstance(sizes[0], tuple) else (sizes[0],)
        return shape if all(type(size) is int for size in shape) else None

    def _call(self, call: ast.Call) -> None:
        name = call_name(call)
        if name == "setattr" and len(call.args) == 3 and isinstance(call.args[1], ast.Constant):
            self._set(ast.Attribute(call.args[0], str(call.args[1].value), ast.Store()), call.args[2])
        elif name.startswith("self.") and name.removeprefix("self.") in self.methods and self.depth < 8:
            self._follow(self.methods[name.removeprefix("self.")], call)
        else:
            self._register(call)

    def _follow(self, method: ast.FunctionDef, call: ast.Call) -> None:
        """Follows a method that the constructor calls."""
        formal = [p.arg for p in parameters(method.args)][1:]
        given = dict(zip(formal, map(self._argument, call.args), strict=False))
        given |= {k.arg: self._argument(k.value) for k in call.keywords if k.arg}
        outside = self.names
        own = {n: v for n, v in outside.items() if n not in formal} | _defaults(method.args, outside) | given
        self.names = {name: known for name, known in own.items() if known is not UNKNOWN}
        self.depth += 1
        self.walk(method.body)
        self.depth -= 1
        attributes = {n: v for n, v in self.names.items() if n.startswith("self.")}
        self.names = {n: v for n, v in outside.items() if not n.startswith("self.")} | attributes

    def _register(self, call: ast.Call) -> None:
        if call_name(call) not in ("self.register_buffer", "self.register_parameter"):
            return  # such as `nn.init.ones_(self.weight)`: the target has its own weights
        arguments = [*call.args, *(k.value for k in call.keywords if k.arg in ("tensor", "param", "name"))]
        if (
            len(arguments) >= 2
            and isinstance(arguments[0], ast.Constant)
            and isinstance(arguments[0].value, str)
        ):
            setting = self._setting(arguments[1])
            if setting.kind != "value":
                setting = Setting("tensor", setting.line, setting.text, shape=setting.shape)
            self.settings[arguments[0].value] = setting

    def _branch(self, statement: ast.If) -> None:
        try:
            test = evaluate(statement.test, self.names)
        except Unknown:
            self._forget(statement)
        else:
            outside, self.conditions = self.conditions, self.conditions + test.read
            self.walk(statement.body if test.value else statement.orelse)
            self.conditions = outside

    def _forget(self, statement: ast.stmt) -> None:
        """Marks what a loop, a ``with`` or an undecided ``if`` sets as unknown."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                name = dotted(node) or ""
                self.names.pop(name, None)
                if name.startswith("self."):
                    text = ast.unparse(statement).split("\n")[0]
                    self.settings[name.removeprefix("self.")] = Setting("other", statement.lineno, text)


def read_constructor(
    init: ast.FunctionDef,
    constants: Mapping[str, KnownValue],
    args: Sequence[KnownValue],
    kwargs: Mapping[str, KnownValue],
    classes: Collection[str],
    methods: Mapping[str, ast.FunctionDef],
) -> dict[str, Setting]:
    """Finds what a constructor sets if it is called with the target's arguments.

    Args:
        init: ``__init__`` with canonical names (``self``, ``torch.nn.Linear``).
        constants: the module-level and class-level constants of the completion.
        args: the positional arguments without ``self``.
        kwargs: the keyword arguments.
        classes: the names of the completion's classes.
        methods: the other methods of the class, with canonical names, which the constructor may call.

    Returns:
        The settings by attribute name (``weight``, ``fc``), in the order in which they are set.
    """
    formal = [p.arg for p in parameters(init.args)][1:]
    names = {**constants, **_defaults(init.args, constants)}
    given = {**dict(zip(formal, args, strict=False)), **{k: v for k, v in kwargs.items() if k in formal}}
    names.update(given)
    for name, known in given.items():
        if known is UNKNOWN:
            del names[name]
    constructor = Constructor(names, classes, methods)
    constructor.walk(init.body)
    return constructor.settings


def _defaults(arguments: ast.arguments, constants: Mapping[str, KnownValue]) -> dict[str, KnownValue]:
    known = {}
    for name, default in defaults(arguments).items():
        try:
            known[name] = evaluate(default, constants)
        except Unknown:
            continue
    return known

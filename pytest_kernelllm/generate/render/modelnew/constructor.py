"""Finds what a completion's ``__init__`` sets on ``self``, without executing it."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pytest_kernelllm.core.records import Scalar
from pytest_kernelllm.core.syntax import call_name, defaults, dotted, expression, parameters
from pytest_kernelllm.generate.render.modelnew import tensors
from pytest_kernelllm.generate.render.modelnew.settings import Setting
from pytest_kernelllm.generate.render.modelnew.tensors import OwnTensor
from pytest_kernelllm.generate.render.modelnew.values import UNKNOWN, KnownValue, Unknown, evaluate

_CONTAINERS = frozenset({"torch.nn.Sequential", "torch.nn.ModuleList"})
_ITEMS = 64
"""Longer loops of a constructor are not followed."""


@dataclass
class Constructor:
    """Follows a constructor's statements and records the last value of each attribute."""

    names: dict[str, KnownValue]
    """Known values by name: arguments, local variables, constants of the file, ``self.<name>``."""
    classes: Collection[str] = ()
    """The names of the completion's classes."""
    functions: Collection[str] = ()
    """The names of its functions and kernels."""
    methods: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    """The other methods of the class, which the constructor may call."""
    settings: dict[str, Setting] = field(default_factory=dict)
    locals: dict[str, Setting] = field(default_factory=dict)
    """Tensors, layers and modules by the local variable that holds them."""
    lists: dict[str, list[Setting]] = field(default_factory=dict)
    """Lists of layers by the local variable that holds them."""
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
        elif isinstance(statement, ast.For) and (items := self._items(statement.iter)):
            for item in items:
                self.names[ast.unparse(statement.target)] = item
                self.walk(statement.body)
        elif isinstance(statement, ast.With):
            self.walk(statement.body)
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
        setting = self._changed(name, self._setting(value))
        if setting.value is not None and self.conditions:
            known = KnownValue(setting.value.value, setting.value.read + self.conditions)
            setting = replace(setting, value=known)
        if name.startswith("self."):
            self._keep(name.removeprefix("self."), setting)
        elif setting.kind in ("tensor", "alias"):
            self.locals[name] = setting
        elif setting.kind in ("layer", "module"):
            self.settings.setdefault(name, setting)  # it takes part as if it were an attribute
            self.locals[name] = Setting("alias", setting.line, setting.text, form=expression(f"self.{name}"))
        self.names.pop(name, None)
        if setting.value is not None:
            self.names[name] = setting.value
            self.locals.pop(name, None)

    def _keep(self, attribute: str, setting: Setting) -> None:
        self.settings[attribute] = setting
        for index, part in enumerate(setting.parts):
            self._keep(f"{attribute}.{index}", part)

    def _changed(self, name: str, setting: Setting) -> Setting:
        """Resolves an alias of the attribute that it replaces: ``self.w = self.w.half()``."""
        before = self.settings.get(name.removeprefix("self.")) if name.startswith("self.") else None
        if setting.form is None or before is None or before.kind not in ("tensor", "alias"):
            return setting
        inner = before.tensor.form if before.tensor is not None else before.form
        assert inner is not None
        form = _Replaced(name, inner).visit(copy.deepcopy(setting.form))
        if before.tensor is None:
            return replace(setting, form=form)
        same = ast.dump(form) == ast.dump(setting.form)
        return setting if same else replace(before, tensor=replace(before.tensor, form=form))

    def _setting(self, node: ast.expr) -> Setting:
        line, text = node.lineno, ast.unparse(node)
        try:
            return Setting("value", line, text, value=evaluate(node, self.names))
        except Unknown:
            pass
        if isinstance(node, ast.IfExp) and (test := self._argument(node.test)) is not UNKNOWN:
            return self._setting(node.body if test.value else node.orelse)
        if (found := self._tensor(node)) is not None:
            return replace(found, line=line, text=text)
        if (name := dotted(node) or "") in self.functions or re.match(r"(torch|tl)\.", name):
            return Setting("alias", line, text, form=expression(name))  # a kernel, or a function of torch
        function = call_name(node) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and (function in self.classes or _is_layer(function)):
            args = tuple(self._argument(item) for item in node.args)
            kwargs = tuple((k.arg, self._argument(k.value)) for k in node.keywords if k.arg)
            kind: Literal["module", "layer"] = "module" if function in self.classes else "layer"
            held = node.args if function in _CONTAINERS else []
            parts = [part for item in held for part in self._listed(item, function)]
            return Setting(kind, line, text, layer=function, args=args, kwargs=kwargs, parts=tuple(parts))
        return Setting("other", line, text)

    def _tensor(self, node: ast.expr) -> Setting | None:
        """Returns what an expression over tensors makes: a ``tensor`` or an ``alias``; None for any other."""
        name = _reading(node)
        if name in self.locals:
            return self.locals[name]
        if (last := tensors.step(node)) is not None and (base := self._tensor(last[0])) is not None:
            return base if last[1] is None else self._stepped(base, last[1])
        if (path := self._part(name)) is not None:
            return Setting("alias", node.lineno, name, form=expression(path))
        if isinstance(node, ast.BinOp):
            return self._scaled(node)
        return self._made(node, call_name(node)) if isinstance(node, ast.Call) else None

    def _made(self, node: ast.Call, function: str) -> Setting | None:
        inner = self._tensor(node.args[0]) if node.args else None
        if node.args and tensors.is_parameter(node):
            if inner is not None and inner.tensor is None:
                return inner
            own = inner.tensor if inner and inner.tensor else OwnTensor()
            return Setting("tensor", 0, "", tensor=replace(own, registered=True))
        if not function.startswith("torch.") or _is_layer(function) or (inner and inner.kind == "alias"):
            return None
        return Setting("tensor", 0, "", tensor=tensors.made_by(function, node, self.names))

    def _listed(self, node: ast.expr, container: str = "") -> list[Setting]:
        """Returns the layers that an argument of a container gives it; none if they are not known."""
        if isinstance(node, ast.Starred):
            return self._listed(node.value)
        if isinstance(node, ast.List | ast.Tuple):
            return [part for item in node.elts for part in self._listed(item, "torch.nn.Sequential")]
        if isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 1:
            loop, outside, made = node.generators[0], self.names, []
            for value in self._items(loop.iter):
                self.names = {**outside, ast.unparse(loop.target): value}
                made.append(self._setting(node.elt))
            self.names = outside
            return made
        if isinstance(node, ast.Name) and node.id in self.lists:
            return self.lists[node.id]
        return [self._setting(node)] if container == "torch.nn.Sequential" else []

    def _items(self, node: ast.expr) -> list[KnownValue]:
        """Returns what a loop runs over; nothing if that is not known or much."""
        known = self._argument(node)
        short = isinstance(known.value, tuple) and len(known.value) <= _ITEMS
        return [KnownValue(value, known.read) for value in known.value] if short else []

    def _part(self, name: str) -> str | None:
        """Returns ``self.conv.weight`` for a name that starts at something that the constructor has set."""
        first, rest = re.fullmatch(r"(\w*)(.*)", name.removeprefix("self.")).groups()  # type: ignore[union-attr]  # it always matches
        known = self.locals.get(first) if not name.startswith("self.") else None
        if known is not None and known.form is not None and rest:
            return f"{ast.unparse(known.form)}{rest}"
        setting = self.settings.get(first) if name.startswith("self.") else None
        if setting is None or setting.kind not in ("tensor", "alias", "layer", "module"):
            return None
        return name if rest or setting.kind in ("tensor", "alias") else None

    def _stepped(self, base: Setting, write: Callable[[ast.expr], ast.expr]) -> Setting | None:
        before = base.tensor.form if base.tensor else base.form
        assert before is not None
        form = write(copy.deepcopy(before))
        if not tensors.carried(form, self.names):
            return None
        return (
            replace(base, tensor=replace(base.tensor, form=form)) if base.tensor else replace(base, form=form)
        )

    def _scaled(self, node: ast.BinOp) -> Setting | None:
        """Returns the tensor that arithmetic with a plain value leaves; of own weights, only the first values change."""
        for side, other in ((node.left, node.right), (node.right, node.left)):
            found = self._tensor(side)
            if found is not None and found.tensor is not None and self._argument(other) is not UNKNOWN:
                return replace(found, tensor=replace(found.tensor, made=None))
        return None

    def _argument(self, node: ast.expr) -> KnownValue:
        try:
            return evaluate(node, self.names)
        except Unknown:
            return UNKNOWN

    def _call(self, call: ast.Call) -> None:
        name = call_name(call)
        if name == "setattr" and len(call.args) == 3 and isinstance(call.args[1], ast.Constant):
            self._set(ast.Attribute(call.args[0], str(call.args[1].value), ast.Store()), call.args[2])
        elif name.endswith(".append") and len(call.args) == 1:
            self._append(name.removesuffix(".append"), self._setting(call.args[0]))
        elif name.startswith("self.") and name.removeprefix("self.") in self.methods and self.depth < 8:
            self._follow(self.methods[name.removeprefix("self.")], call)
        else:
            self._register(call)

    def _append(self, name: str, setting: Setting) -> None:
        attribute = name.removeprefix("self.")
        if name in self.lists or self.names.get(name) == KnownValue(()):
            self.lists.setdefault(name, []).append(setting)
        elif (
            name.startswith("self.") and (held := self.settings.get(attribute)) and held.layer in _CONTAINERS
        ):
            self._keep(attribute, replace(held, parts=(*held.parts, setting)))

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
            self._initialised(call)
            return
        arguments = [*call.args, *(k.value for k in call.keywords if k.arg in ("tensor", "param", "name"))]
        if (
            len(arguments) >= 2
            and isinstance(arguments[0], ast.Constant)
            and isinstance(arguments[0].value, str)
        ):
            setting = self._changed(f"self.{arguments[0].value}", self._setting(arguments[1]))
            if setting.kind == "tensor" and setting.tensor is not None:
                setting = replace(setting, tensor=replace(setting.tensor, registered=True))
            elif setting.kind == "other":
                setting = replace(setting, kind="tensor", tensor=OwnTensor())
            self.settings[arguments[0].value] = setting

    def _initialised(self, call: ast.Call) -> None:
        """Forgets the first values of a tensor that ``nn.init`` changes; the target has its own weights."""
        name = (
            dotted(call.args[0]) or "" if call.args and call_name(call).startswith("torch.nn.init.") else ""
        )
        for held, key in ((self.locals, name), (self.settings, name.removeprefix("self."))):
            setting = held.get(key)
            if setting is not None and setting.tensor is not None:
                held[key] = replace(setting, tensor=replace(setting.tensor, made=None))

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
    functions: Collection[str],
    methods: Mapping[str, ast.FunctionDef],
) -> dict[str, Setting]:
    """Finds what a constructor sets if it is called with the target's arguments.

    Args:
        init: ``__init__`` with canonical names (``self``, ``torch.nn.Linear``).
        constants: the module-level and class-level constants of the completion.
        args: the positional arguments without ``self``.
        kwargs: the keyword arguments.
        classes: the names of the completion's classes.
        functions: the names of its functions and kernels.
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
    constructor = Constructor(names, classes, functions, methods)
    constructor.walk(init.body)
    return constructor.settings


class _Replaced(ast.NodeTransformer):
    """Replaces an attribute by an expression."""

    def __init__(self, name: str, by: ast.expr) -> None:
        self._name, self._by = name, by

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return copy.deepcopy(self._by) if dotted(node) == self._name else self.generic_visit(node)


def _reading(node: ast.expr) -> str:
    """Returns the text of ``self.layers[0].weight``; nothing for expressions of another form."""
    inner = node
    while isinstance(inner, ast.Attribute | ast.Subscript):
        if isinstance(inner, ast.Subscript) and not isinstance(inner.slice, ast.Constant):
            return ""
        inner = inner.value
    return ast.unparse(node) if isinstance(inner, ast.Name) else ""


def _is_layer(function: str) -> bool:
    return function.startswith("torch.nn.") and function.rpartition(".")[2][:1].isupper()


def _defaults(arguments: ast.arguments, constants: Mapping[str, KnownValue]) -> dict[str, KnownValue]:
    known = {}
    for name, default in defaults(arguments).items():
        try:
            known[name] = evaluate(default, constants)
        except Unknown:
            continue
    return known

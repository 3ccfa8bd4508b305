"""Finds what a completion's ``__init__`` sets on ``self``, without executing it."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernelllm_judge.core.records import Scalar
from kernelllm_judge.core.syntax import Substitute, call_name, defaults, dotted, expression, parameters
from kernelllm_judge.render.modelnew.expressions import CONTAINERS, Expressions
from kernelllm_judge.render.modelnew.settings import Setting
from kernelllm_judge.render.modelnew.tensors import OwnTensor
from kernelllm_judge.render.modelnew.values import UNKNOWN, KnownValue, Unknown, evaluate


@dataclass
class Constructor(Expressions):
    """Follows a constructor's statements and records the last value of each attribute."""

    methods: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    """The other methods of the class, which the constructor may call."""
    conditions: tuple[Scalar, ...] = ()
    """The constructor arguments that decided which branch is followed."""
    depth: int = 0
    """The number of nested method calls that are being followed."""
    aliases: dict[str, ast.expr] = field(default_factory=dict)
    """The completion's classes by the local variable that stands for them."""
    returned: Setting | None = None
    """What the method that was followed last returns."""

    def walk(self, statements: Iterable[ast.stmt]) -> None:
        """Follows statements in order."""
        for statement in statements:
            self._take(Substitute(self.aliases).apply(statement) if self.aliases else statement)

    def setting(self, node: ast.expr) -> Setting:
        """Returns what assigning an expression sets; a method of the class is followed to what it returns."""
        if isinstance(node, ast.Call) and (method := self._method(node)) is not None:
            self._follow(method, node)
            if self.returned is not None:
                return replace(self.returned, line=node.lineno, text=ast.unparse(node))
        return super().setting(node)

    def _take(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._set(target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._set(statement.target, statement.value)
        elif isinstance(statement, ast.AugAssign) and (held := self.lists.get(ast.unparse(statement.target))):
            held += self._listed(statement.value)
        elif isinstance(statement, ast.AugAssign):
            before = expression(ast.unparse(statement.target))
            changed = ast.BinOp(before, statement.op, statement.value)
            self._set(statement.target, ast.copy_location(changed, statement))
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._call(statement.value)
        elif isinstance(statement, ast.If):
            self._branch(statement)
        elif isinstance(statement, ast.For) and (items := self.items(statement.iter)):
            for item in items:
                self.bind(statement.target, item)
                self.walk(statement.body)
        elif isinstance(statement, ast.With):
            self.walk(statement.body)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            self.returned = self.setting(statement.value)
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
        for held in (self.aliases, self.built, self.lists):
            held.pop(name, None)
        if isinstance(target, ast.Name) and dotted(value) in self.classes:
            self.aliases[name] = value
            return
        if isinstance(target, ast.Name) and isinstance(value, ast.List):
            self.lists[name] = self._listed(value)
        setting = self._changed(name, self.setting(value))
        if setting.value is not None and self.conditions:
            known = KnownValue(setting.value.value, setting.value.read + self.conditions)
            setting = replace(setting, value=known)
        if name.startswith("self."):
            self._keep(name.removeprefix("self."), setting)
        elif setting.kind in ("tensor", "alias"):
            self.locals[name] = setting
        elif setting.kind in ("layer", "module"):
            self.settings.setdefault(name, setting)  # it takes part as if it were an attribute
            self.built[name] = setting
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

    def _call(self, call: ast.Call) -> None:
        name = call_name(call)
        if name == "setattr" and len(call.args) == 3 and isinstance(call.args[1], ast.Constant):
            self._set(ast.Attribute(call.args[0], str(call.args[1].value), ast.Store()), call.args[2])
        elif name.endswith(".append") and len(call.args) == 1:
            self._append(name.removesuffix(".append"), self.part(call.args[0]))
        elif name.endswith(".extend") and len(call.args) == 1:
            for part in self._listed(call.args[0]):
                self._append(name.removesuffix(".extend"), part)
        elif (method := self._method(call)) is not None:
            self._follow(method, call)
        else:
            self._register(call)

    def _method(self, call: ast.Call) -> ast.FunctionDef | None:
        name = call_name(call)
        return self.methods.get(name[5:]) if name.startswith("self.") and self.depth < 8 else None

    def _append(self, name: str, setting: Setting) -> None:
        attribute = name.removeprefix("self.")
        if name in self.lists:
            self.lists[name].append(setting)
        elif name.startswith("self.") and (held := self.settings.get(attribute)) and held.layer in CONTAINERS:
            self._keep(attribute, replace(held, parts=(*held.parts, setting)))

    def _follow(self, method: ast.FunctionDef, call: ast.Call) -> None:
        """Follows a method that the constructor calls; ``returned`` is what it returns then."""
        formal = [p.arg for p in parameters(method.args)][1:]
        passed = {
            **dict(zip(formal, call.args, strict=False)),
            **{k.arg: k.value for k in call.keywords if k.arg},
        }
        given = {name: self.argument(value) for name, value in passed.items()}
        outside, aliases, local = self.names, self.aliases, (self.locals, self.lists, self.built)
        own = {n: v for n, v in outside.items() if n not in formal} | _defaults(method.args, outside) | given
        self.names = {name: known for name, known in own.items() if known is not UNKNOWN}
        self.aliases = {name: value for name, value in passed.items() if dotted(value) in self.classes}
        self.locals, self.lists, self.built = {}, {}, {}
        self.returned = None
        self.depth += 1
        self.walk(method.body)
        self.depth -= 1
        attributes = {n: v for n, v in self.names.items() if n.startswith("self.")}
        self.names = {n: v for n, v in outside.items() if not n.startswith("self.")} | attributes
        self.aliases, (self.locals, self.lists, self.built) = aliases, local

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
            setting = self._changed(f"self.{arguments[0].value}", self.setting(arguments[1]))
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
    constructor = Constructor(names, classes, functions, methods=methods)
    constructor.walk(init.body)
    return constructor.settings


class _Replaced(ast.NodeTransformer):
    """Replaces an attribute by an expression."""

    def __init__(self, name: str, by: ast.expr) -> None:
        self._name, self._by = name, by

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return copy.deepcopy(self._by) if dotted(node) == self._name else self.generic_visit(node)


def _defaults(arguments: ast.arguments, constants: Mapping[str, KnownValue]) -> dict[str, KnownValue]:
    known = {}
    for name, default in defaults(arguments).items():
        try:
            known[name] = evaluate(default, constants)
        except Unknown:
            continue
    return known

"""Maps what a completion's ``ModelNew`` reads from ``self`` to the target's own attributes."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping, Sequence

from pytest_kernelllm.core.parts import Parts
from pytest_kernelllm.core.records import Domain, TensorSpec
from pytest_kernelllm.core.syntax import Substitute, constant_int, dotted, expression, is_literal, literal
from pytest_kernelllm.generate.render.errors import RenderError
from pytest_kernelllm.generate.render.modelnew.instances import Instance
from pytest_kernelllm.generate.render.modelnew.layers import (
    built_with,
    call_of,
    from_constructor,
    has_weights,
)
from pytest_kernelllm.generate.render.modelnew.matches import Match, is_transposed
from pytest_kernelllm.generate.render.modelnew.settings import Setting
from pytest_kernelllm.generate.render.modelnew.target_attributes import TargetAttributes
from pytest_kernelllm.generate.render.modelnew.target_layers import TargetLayers
from pytest_kernelllm.generate.render.modelnew.tensors import OwnTensor, with_tensor
from pytest_kernelllm.generate.render.modelnew.values import KnownValue, Unknown, evaluate


class AttributeMapper(ast.NodeTransformer):
    """Rewrites a method of ``ModelNew`` to a function on the target's instance.

    Weights and layers are mapped as a ``Match`` says. A plain value becomes the target's attribute of that name,
    or the only attribute with the same value, or a literal: the domain pins all that the original reads.
    Calls of stock layers become calls of functions, except for those that vendor libraries compute.
    """

    def __init__(
        self,
        instance: Instance,
        others: Mapping[str, Instance],
        domain: Domain,
        parts: Parts,
        match: Match,
        tensor: str | None,
    ) -> None:
        """Prepares to rewrite the methods of one module of a completion.

        Args:
            instance: the module.
            others: all modules of the completion, by path.
            domain: the domain of any case, as the attributes are the same in all.
            parts: the parts of the target.
            match: which weights and layers of the target the completion's own stand for.
            tensor: a parameter of the method on whose device tensors are made, if there is one.
        """
        self._others, self._match, self._tensor_name = others, match, tensor
        self._layers = TargetLayers(domain, parts)
        self._settings, self._domain, self._parts = instance.settings, domain, parts
        self._path = instance.path
        self._at = f"{instance.path}." if instance.path else ""
        below = {p.removeprefix(self._at): o for p, o in others.items() if p.startswith(self._at) and p}
        self._methods = dict(instance.functions)
        self._properties = instance.properties
        for path, other in below.items():
            self._methods[path] = other.functions["forward"]
            self._methods.update({f"{path}.{m}": function for m, function in other.functions.items()})
        self._attributes = TargetAttributes(domain.attributes, self._at)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Turns ``self._helper(x)`` into ``_helper(self, x)``, and calls of layers as ``layers`` says."""
        if (known := self._is_instance(node)) is not None:
            return known
        if dotted(node.func) == "len" and len(node.args) == 1 and (held := self._own_parts(node.args[0])):
            return ast.copy_location(literal(len(held)), node)
        name = self._name(node.func)
        if function := self._methods.get(name or ""):
            self._visit_arguments(node)
            node.func = ast.copy_location(ast.Name(function, ast.Load()), node.func)
            node.args.insert(0, ast.Name("self", ast.Load()))
            return node
        if name and (held := self._parts_of(name)) and self._settings[name].layer == "torch.nn.Sequential":
            whole = self._only_argument(node)
            for index in range(len(held)):
                item = ast.Subscript(node.func, ast.Constant(index), ast.Load())
                whole = ast.copy_location(ast.Call(item, [whole], []), node)
            return self.visit(ast.fix_missing_locations(whole))  # type: ignore[no-any-return]  # typeshed: visit() -> Any
        if name and (call := self._stock_call(name, node)) is not None:
            return ast.copy_location(call, node)
        return self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        """Writes a loop over layers out where some of them become calls of functions."""
        steps = [_bound(node.target, item) for item in self._items(node.iter)]
        if node.orelse or None in steps or not self._reaches_code(node.iter):
            return self.generic_visit(node)
        written: list[ast.stmt] = []
        for values in filter(None, steps):
            done, jump = _until_jump(self._visited(map(Substitute(values).apply, node.body)))
            if any(isinstance(inner, ast.Break | ast.Continue) for part in done for inner in ast.walk(part)):
                return self.generic_visit(node)  # a jump that is not decided here
            written += done
            if isinstance(jump, ast.Break):
                break
        return written or ast.copy_location(ast.Pass(), node)

    def _items(self, node: ast.expr) -> list[ast.expr]:
        """Returns what a loop over layers runs over; nothing for other loops."""
        items: list[ast.expr]
        match node:
            case ast.Call(func=ast.Name(id="enumerate"), args=[layers], keywords=[]):
                items = [ast.Tuple([ast.Constant(n), item]) for n, item in enumerate(self._items(layers))]
            case ast.Call(func=ast.Name(id="range"), args=[ast.Call(func=ast.Name(id="len"), args=[layers])]):
                items = [ast.Constant(number) for number, _ in enumerate(self._items(layers))]
            case ast.Call(func=ast.Name(id="zip"), args=lists):
                items = [ast.Tuple(list(each)) for each in zip(*map(self._items, lists), strict=False)]
            case _:
                count = len(self._own_parts(node) or self._container(node))
                items = [ast.Subscript(node, ast.Constant(index), ast.Load()) for index in range(count)]
        return [ast.fix_missing_locations(ast.copy_location(item, node)) for item in items]

    def _reaches_code(self, node: ast.expr) -> bool:
        """Whether an expression holds a list with other layers than those that can be called as they are."""
        lists = [n for n in ast.walk(node) if isinstance(n, ast.Attribute | ast.Subscript)]
        own = any(map(self._own_parts, lists))
        return own or not all(
            self._layers.is_vendor(name) for inner in lists for name in self._container(inner)
        )

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Keeps the branch that is taken where the answer alone decides it, or the class of a layer."""
        known = self._constant(node.test)
        node.test = self.visit(node.test) if known is None else literal(bool(known.value))
        if not isinstance(node.test, ast.Constant) or not isinstance(node.test.value, bool):
            node.body, node.orelse = self._visited(node.body), self._visited(node.orelse)
            return node
        kept = self._visited(node.body if node.test.value else node.orelse)
        return kept or ast.copy_location(ast.Pass(), node)

    def _constant(self, node: ast.expr) -> KnownValue | None:
        """Returns the value of an expression over what the constructor sets, whatever its arguments are."""
        settings = {f"self.{name}": setting.value for name, setting in self._settings.items()}
        try:
            return evaluate(
                node, {name: value for name, value in settings.items() if value and not value.read}
            )
        except Unknown:
            return None

    def _visited(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        written: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            written += new if isinstance(new, list) else [new]
        return written

    def _is_instance(self, node: ast.Call) -> ast.Constant | None:
        """Decides ``isinstance(self.net[1], torch.nn.ReLU)``; returns None if its layer or class is not known."""
        if dotted(node.func) != "isinstance" or len(node.args) != 2 or not (name := self._name(node.args[0])):
            return None
        setting = self._settings.get(name)
        layer = setting.layer if setting is not None else self._layers.class_of(f"{self._at}{name}")
        asked = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
        names = [dotted(one) or "" for one in asked]
        if not layer or not all(names):
            return None
        found = any(one.rpartition(".")[2] == layer.rpartition(".")[2] for one in names)
        return ast.copy_location(ast.Constant(found), node)

    def _visit_arguments(self, node: ast.Call) -> None:
        node.args = [self.visit(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Maps a dotted path such as ``self.a[0].b``."""
        name = self._name(node)
        if not name:
            return self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            raise RenderError(
                f"Line {node.lineno} changes {ast.unparse(node)} in forward; a kernel module keeps no state."
            )
        return ast.copy_location(self._map(name, node.lineno), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Maps an item of a container such as ``self.layers[-1]``."""
        name = self._name(node)
        if not name or not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        return ast.copy_location(self._map(name, node.lineno), node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Rejects ``self`` by itself, because it is the target's instance and not the completion's."""
        if node.id == "self":
            raise RenderError(
                f"Line {node.lineno} passes on self as a whole; only its attributes can be used."
            )
        return node

    def _name(self, node: ast.expr) -> str | None:
        """Returns the dotted name, relative to the completion's ``self``, of what an expression reads."""
        if (own := self._own_name(node)) is not None:
            return own
        name = self._parts.name(node, self._path)
        return None if name is None else name.removeprefix(self._path).removeprefix(".")

    def _own_name(self, node: ast.expr) -> str | None:
        """Returns the dotted name of what an expression reaches through the completion's own containers."""
        match node:
            case ast.Name(id="self"):
                return ""
            case ast.Attribute(value=value, attr=last):
                owner = self._own_name(value)
                return None if owner is None else f"{owner}.{last}".removeprefix(".")
            case ast.Subscript(value=value, slice=index):
                owner = self._own_name(value)
                held, at = self._parts_of(owner or ""), constant_int(index)
                if held and at is not None and -len(held) <= at < len(held):
                    return f"{owner}.{at % len(held)}"
        return None

    def _parts_of(self, name: str) -> tuple[Setting, ...]:
        setting = self._settings.get(name)
        return setting.parts if setting is not None else ()

    def _own_parts(self, node: ast.expr) -> tuple[Setting, ...]:
        """Returns what the completion puts into the list that an expression reaches."""
        return self._parts_of(self._name(node) or "")

    def _map(self, name: str, line: int) -> ast.expr:
        first = name.split(".")[0]
        if name == "training":
            return literal(self._domain.training)
        if first in self._properties:
            read = ast.Call(ast.Name(self._methods[first], ast.Load()), [ast.Name("self", ast.Load())], [])
            return _member(read, name[len(first) + 1 :])
        if first in self._methods:
            raise RenderError(f"Line {line} uses the method self.{first} as a value; it can only be called.")
        key = next((prefix for prefix in _prefixes(name) if prefix in self._settings), first)
        setting, rest = self._settings.get(key), name[len(key) + 1 :]
        if setting is None:
            if self._attributes.reaches(name):
                return self._own(name)
            raise RenderError(
                f"Line {line} reads self.{name}, which ModelNew never sets and {self._attributes.in_words()}."
            )
        if setting.form is not None:
            return _member(self.visit(copy.deepcopy(setting.form)), rest)
        if setting.tensor is not None:
            return _member(self._tensor(key, setting, setting.tensor), rest)
        if setting.kind == "layer":
            return self._layer(key, rest, setting)
        if setting.kind == "module" and rest and (inner := self._others.get(f"{self._at}{key}")) is not None:
            mapper = AttributeMapper(
                inner, self._others, self._domain, self._parts, self._match, self._tensor_name
            )
            return mapper._map(rest, line)
        if setting.value is not None:
            return self._value(name, first, setting.value, setting)
        if self._attributes.reaches(name):
            return self._own(name)
        raise RenderError(
            f"{_where(first, setting)} cannot be computed from the "
            f"constructor's arguments, and {self._attributes.in_words()}."
        )

    def _own(self, name: str) -> ast.expr:
        return self._layers.reached(f"{self._at}{name}")

    def _tensor(self, name: str, setting: Setting, own: OwnTensor) -> ast.expr:
        path = f"{self._at}{name}"
        if path not in self._match.names:
            namesake = self._attributes.tensor(name)
            if namesake is not None and own.shape not in (None, namesake.shape):
                raise RenderError(
                    f"self.{name} (line {setting.line}) has shape {own.shape}, the target's has {namesake.shape}."
                )
            shaped = f" of shape {own.shape}" if own.shape is not None else ""
            raise RenderError(
                f"{_where(name, setting)} cannot be mapped: no weight{shaped} is left for it, "
                f"and {self._attributes.in_words(tensors=True)}."
            )
        theirs = self._match.names[path]
        if theirs is None:
            return with_tensor(own.form, self._written(own, setting))
        spec = self._domain.attributes[theirs]
        assert isinstance(spec, TensorSpec)
        reached = self._layers.reached(theirs)
        if own.shape is not None and own.shape != spec.shape:
            other = (
                "transpose(0, 1).contiguous()"
                if is_transposed(own.shape, spec.shape)
                else f"view({own.shape})"
            )
            reached = expression(f"{ast.unparse(reached)}.{other}")
        return with_tensor(own.form, reached)

    def _written(self, own: OwnTensor, setting: Setting) -> ast.expr:
        """Writes a tensor that always has the same values where it is used."""
        if self._tensor_name is None:
            raise RenderError(
                f"Line {setting.line}: {setting.text} is used in a function without a tensor argument."
            )
        made = copy.deepcopy(own.made)
        assert isinstance(made, ast.Call)
        made.keywords.append(ast.keyword("device", expression(f"{self._tensor_name}.device")))
        return made

    def _layer(self, name: str, rest: str, setting: Setting) -> ast.expr:
        theirs = self._match.names.get(f"{self._at}{name}")
        if theirs is not None:
            return self._layers.reached(f"{theirs}.{rest}" if rest else theirs)
        stated = built_with(setting.layer, setting.args, setting.kwargs)
        if rest in stated and not has_weights(setting.layer):
            return literal(stated[rest])
        layer, cls = setting.layer.rpartition(".")[2], self._layers.class_of(f"{self._at}{name}")
        if cls:
            raise RenderError(f"self.{name} (line {setting.line}) is a {layer}, the target's is a {cls}.")
        raise RenderError(
            f"{_where(name, setting)} cannot be mapped: the target has no submodule of that name, "
            f"and no other {layer} like it."
        )

    def _layer_path(self, name: str) -> str:
        """Returns the target's name for a layer by the completion's name for it."""
        for prefix in _prefixes(name):
            if theirs := self._match.names.get(f"{self._at}{prefix}"):
                return theirs + name[len(prefix) :]
        return f"{self._at}{name}"

    def _container(self, node: ast.expr) -> list[str]:
        """Returns the parts of a list of layers that an expression over ``self`` reaches."""
        name = self._name(node)
        return self._layers.listed(self._layer_path(name)) if name else []

    def _stock_call(self, name: str, node: ast.Call) -> ast.expr | None:
        """Writes the call of a layer; returns None if no layer is called."""
        setting = self._settings.get(name)
        path = self._layer_path(name)
        own = setting is not None and setting.kind == "layer" and f"{self._at}{name}" not in self._match.names
        if not own and not self._layers.class_of(path):
            return None
        self._visit_arguments(node)
        if own and setting is not None and not has_weights(setting.layer):
            stated = built_with(setting.layer, setting.args, setting.kwargs)
            call = call_of(setting.layer, self._only_argument(node), from_constructor(stated))
            if call is None:
                raise RenderError(f"{_where(name, setting)} has arguments that are not known.")
            return call
        if own and setting is not None:
            return self._layer(name, "", setting)  # which raises
        if self._layers.is_vendor(path):
            node.func = self._layers.reached(path)
            return node
        return self._layers.call(path, self._only_argument(node), node.lineno)

    def _only_argument(self, node: ast.Call) -> ast.expr:
        if len(node.args) != 1 or node.keywords:
            raise RenderError(
                f"Line {node.lineno}: `{ast.unparse(node)[:60]}` calls a layer with other arguments than one."
            )
        return node.args[0]

    def _value(self, name: str, first: str, known: KnownValue, setting: Setting) -> ast.expr:
        if not is_literal(known.value):
            if self._attributes.reaches(name):
                return self._own(name)
            try:
                known = evaluate(expression(f"self.{name}"), {f"self.{first}": known})
            except Unknown:
                raise RenderError(
                    f"{_where(first, setting)} is an object, and {self._attributes.in_words()}."
                ) from None
        value = known.value
        if self._attributes.equals(name, value):
            return self._own(name)
        if known.read and name not in self._attributes and (other := self._attributes.only_with(value)):
            return self._own(other)
        return literal(value)


def _prefixes(name: str) -> list[str]:
    """Returns ``["a.b.c", "a.b", "a"]`` for ``a.b.c``."""
    words = name.split(".")
    return [".".join(words[:n]) for n in range(len(words), 0, -1)]


def _bound(target: ast.expr, item: ast.expr) -> dict[str, ast.expr] | None:
    """Returns what each name of a loop's target stands for; None if the two have different forms."""
    match target, item:
        case ast.Name(id=name), _:
            return {name: item}
        case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
            bound = [_bound(*pair) for pair in zip(names, values, strict=True)]
            return None if None in bound else {k: v for each in bound if each for k, v in each.items()}
    return None


def _until_jump(statements: Sequence[ast.stmt]) -> tuple[Sequence[ast.stmt], ast.stmt | None]:
    """Splits a loop's body at the `break` or `continue` that always ends it, if there is one."""
    for index, statement in enumerate(statements):
        if isinstance(statement, ast.Break | ast.Continue):
            return statements[:index], statement
    return statements, None


def _member(node: ast.expr, rest: str) -> ast.expr:
    """Returns an attribute of an expression by its dotted name."""
    for name in rest.split(".") if rest else ():
        node = ast.Attribute(node, name, ast.Load())
    return node


def _where(name: str, setting: Setting) -> str:
    text = setting.text if len(setting.text) <= 60 else setting.text[:57] + "..."
    return f"self.{name} = {text} (line {setting.line})"

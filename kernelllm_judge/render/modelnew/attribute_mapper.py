"""Maps what a completion's ``ModelNew`` reads from ``self`` to the target's own attributes."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from kernelllm_judge.core.parts import Parts
from kernelllm_judge.core.records import Domain, Scalar, TensorSpec
from kernelllm_judge.core.syntax import dotted, expression, literal
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.modelnew.instances import Instance
from kernelllm_judge.render.modelnew.layer_flow import LayerFlow
from kernelllm_judge.render.modelnew.layers import call_of, from_constructor, has_weights
from kernelllm_judge.render.modelnew.matches import Match, is_transposed
from kernelllm_judge.render.modelnew.own_names import OwnNames, prefixes
from kernelllm_judge.render.modelnew.settings import OwnTensor, Setting, same
from kernelllm_judge.render.modelnew.target_layers import TargetLayers


class TargetAttributes:
    """What the target's ``forward`` reads below one of its modules, by name relative to that module."""

    def __init__(self, attributes: Mapping[str, TensorSpec | Scalar], at: str) -> None:
        """Takes the attributes of a domain; ``at`` is empty or the module's path with a dot behind it."""
        self._specs = {
            name.removeprefix(at): spec for name, spec in attributes.items() if name.startswith(at)
        }

    def __contains__(self, name: str) -> bool:
        """Whether an attribute of exactly this name is read."""
        return name in self._specs

    def reaches(self, name: str) -> bool:
        """Whether ``self.<name>`` starts with an attribute, a sequence or a submodule."""
        parts = name.split(".")
        prefixes = {".".join(parts[: i + 1]) for i in range(len(parts))}
        return any(f"{p}{held}" in self._specs for p in prefixes for held in ("", ".__class__", "[0]"))

    def equals(self, name: str, value: object) -> bool:
        """Whether an attribute has this plain value."""
        return name in self._specs and _is(self._specs[name], value)

    def only_with(self, value: object) -> str | None:
        """Returns the one attribute with a value; None where there are none or several."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None  # too common to be evidence
        named = {k: v for k, v in self._specs.items() if not k.endswith("__class__") and "[" not in k}
        found = [name for name, spec in named.items() if _is(spec, value)]
        return found[0] if len(found) == 1 else None

    def in_words(self, tensors: bool = False) -> str:
        """Returns a clause that lists the attributes, or only the tensors among them."""
        names = [
            k
            for k, v in self._specs.items()
            if not k.endswith("__class__") and (isinstance(v, TensorSpec) or not tensors)
        ]
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return f"the target has only {listed}" if names else "the target has none"


def _is(spec: TensorSpec | Scalar, value: object) -> bool:
    return not isinstance(spec, TensorSpec) and (spec is None) == (value is None) and same(spec, value)


class AttributeMapper(LayerFlow):
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
        """Prepares to rewrite the methods of one module of a completion."""
        layers = TargetLayers(domain, parts)
        names = OwnNames(instance.path, instance.settings, parts, layers, match)
        super().__init__(names, layers, domain.training)
        self._others, self._match, self._tensor_name = others, match, tensor
        self._domain, self._parts = domain, parts
        at = self._names.full("")
        below = {p.removeprefix(at): o for p, o in others.items() if p.startswith(at) and p}
        self._methods = dict(instance.functions)
        self._properties = instance.properties
        for path, other in below.items():
            self._methods[path] = other.functions["forward"]
            self._methods.update({f"{path}.{m}": function for m, function in other.functions.items()})
        self._attributes = TargetAttributes(domain.attributes, at)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Turns ``self._helper(x)`` into ``_helper(self, x)``, and calls of layers as ``layers`` says."""
        if (known := self._is_instance(node)) is not None:
            return known
        if dotted(node.func) == "len" and node.args and (held := self._names.items_of(node.args[0])):
            return ast.copy_location(literal(held), node)
        name = self._names.read(node.func)
        if function := self._methods.get(name or ""):
            self._visit_arguments(node)
            node.func = ast.copy_location(ast.Name(function, ast.Load()), node.func)
            node.args.insert(0, ast.Name("self", ast.Load()))
            return node
        setting = self._names.settings.get(name or "")
        if setting is not None and setting.parts and setting.layer == "torch.nn.Sequential":
            whole = self._only_argument(node)
            for index in range(setting.parts):
                item = ast.Subscript(node.func, ast.Constant(index), ast.Load())
                whole = ast.copy_location(ast.Call(item, [whole], []), node)
            return self.visit(ast.fix_missing_locations(whole))  # type: ignore[no-any-return]  # typeshed: visit() -> Any
        if name and (call := self._stock_call(name, node)) is not None:
            return ast.copy_location(call, node)
        return self.generic_visit(node)

    def _visit_arguments(self, node: ast.Call) -> None:
        node.args = [self.visit(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)

    def visit_Attribute(self, node: ast.Attribute | ast.Subscript) -> ast.AST:
        """Maps a dotted path such as ``self.a[0].b``."""
        name, changed = self._names.read(node), not isinstance(node.ctx, ast.Load)
        if not name or (changed and isinstance(node, ast.Subscript)):
            return self.generic_visit(node)
        if changed:
            raise RenderError(
                f"Line {node.lineno} changes {ast.unparse(node)} in forward; a kernel module keeps no state."
            )
        return ast.copy_location(self._map(name, node.lineno), node)

    visit_Subscript = visit_Attribute

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Rejects ``self`` by itself, because it is the target's instance and not the completion's."""
        if node.id == "self":
            raise RenderError(
                f"Line {node.lineno} passes on self as a whole; only its attributes can be used."
            )
        return node

    def _map(self, name: str, line: int) -> ast.expr:
        first = name.split(".")[0]
        if name == "training":
            return literal(self._domain.training)
        if first in self._properties:
            read = ast.Call(ast.Name(self._methods[first], ast.Load()), [ast.Name("self", ast.Load())], [])
            return _member(read, name[len(first) + 1 :])
        if first in self._methods:
            raise RenderError(f"Line {line} uses the method self.{first} as a value; it can only be called.")
        key = next((prefix for prefix in prefixes(name) if prefix in self._names.settings), first)
        setting, rest = self._names.settings.get(key), name[len(key) + 1 :]
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
        inner = self._others.get(self._names.full(key))
        if setting.kind == "module" and rest and inner is not None:
            mapper = AttributeMapper(
                inner, self._others, self._domain, self._parts, self._match, self._tensor_name
            )
            return mapper._map(rest, line)
        if setting.kind == "value" and not rest:
            return self._value(name, setting)
        if self._attributes.reaches(name):
            return self._own(name)
        raise RenderError(
            f"{_where(first, setting)} is no plain value, tensor or layer, and {self._attributes.in_words()}."
        )

    def _own(self, name: str) -> ast.expr:
        return self._layers.reached(self._names.full(name))

    def _tensor(self, name: str, setting: Setting, own: OwnTensor) -> ast.expr:
        path = self._names.full(name)
        if path not in self._match.names:
            raise RenderError(
                f"{_where(name, setting)} cannot be mapped: no weight of shape {own.shape} is left for it, "
                f"and {self._attributes.in_words(tensors=True)}."
            )
        theirs = self._match.names[path]
        if theirs is None:
            return own.written(self._constant_tensor(name, own, setting))
        spec = self._domain.attributes[theirs]
        assert isinstance(spec, TensorSpec)
        reached = self._layers.reached(theirs)
        if own.shape != spec.shape:
            other = (
                "transpose(0, 1).contiguous()"
                if is_transposed(own.shape, spec.shape)
                else f"view({own.shape})"
            )
            reached = expression(f"{ast.unparse(reached)}.{other}")
        return own.written(reached)

    def _constant_tensor(self, name: str, own: OwnTensor, setting: Setting) -> ast.expr:
        """Writes a tensor that always has the same values where it is used."""
        if self._tensor_name is None:
            raise RenderError(f"{_where(name, setting)} is used in a function without a tensor argument.")
        made = copy.deepcopy(own.made)
        assert made is not None
        made.keywords.append(ast.keyword("device", expression(f"{self._tensor_name}.device")))
        return made

    def _layer(self, name: str, rest: str, setting: Setting) -> ast.expr:
        theirs = self._match.names.get(self._names.full(name))
        if theirs is not None:
            return self._layers.reached(f"{theirs}.{rest}" if rest else theirs)
        if rest in setting.stated and not has_weights(setting.layer):
            return literal(setting.stated[rest])
        layer, cls = setting.layer.rpartition(".")[2], self._layers.class_of(self._names.full(name))
        if cls:
            raise RenderError(f"{_where(name, setting)} is a {layer}, the target's is a {cls}.")
        raise RenderError(
            f"{_where(name, setting)} cannot be mapped: the target has no submodule of that name, "
            f"and no other {layer} like it."
        )

    def _stock_call(self, name: str, node: ast.Call) -> ast.expr | None:
        """Writes the call of a layer; returns None if no layer is called."""
        setting = self._names.settings.get(name)
        path = self._names.layer(name)
        own = (
            setting is not None
            and setting.kind == "layer"
            and self._names.full(name) not in self._match.names
        )
        if not own and not self._layers.class_of(path):
            return None
        self._visit_arguments(node)
        if own and setting is not None and not has_weights(setting.layer):
            call = call_of(setting.layer, self._only_argument(node), from_constructor(setting.stated))
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

    def _value(self, name: str, setting: Setting) -> ast.expr:
        if self._attributes.equals(name, setting.value):
            return self._own(name)
        other = self._attributes.only_with(setting.value) if setting.given else None
        if other is not None and name not in self._attributes:
            return self._own(other)
        return literal(setting.value)


def _member(node: ast.expr, rest: str) -> ast.expr:
    """Returns an attribute of an expression by its dotted name."""
    return expression(f"{ast.unparse(node)}.{rest}") if rest else node


def _where(name: str, setting: Setting) -> str:
    return f"self.{name} (line {setting.line})" if setting.line else f"self.{name}"

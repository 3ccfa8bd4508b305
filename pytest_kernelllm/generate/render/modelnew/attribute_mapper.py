"""Maps what a completion's ``ModelNew`` reads from ``self`` to the target's own attributes."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from pytest_kernelllm.core.parts import Parts
from pytest_kernelllm.core.records import Domain, Scalar, TensorSpec
from pytest_kernelllm.core.syntax import expression, is_literal, literal
from pytest_kernelllm.generate.render.errors import RenderError
from pytest_kernelllm.generate.render.modelnew.constructor import Setting
from pytest_kernelllm.generate.render.modelnew.instances import Instance
from pytest_kernelllm.generate.render.modelnew.values import KnownValue, Unknown, evaluate, same

_CALLABLE = frozenset(
    {"Linear", "Bilinear", "Embedding"} | {f"Conv{t}{n}d" for t in ("", "Transpose") for n in (1, 2, 3)}
)
"""Stock layers that a kernel module may call; everything else it computes itself."""


class AttributeMapper(ast.NodeTransformer):
    """Rewrites a method of ``ModelNew`` to a function on the target's instance.

    Weights and layers are mapped by name only. A plain value becomes the target's attribute of that name, or
    the only attribute with the same value, or a literal if the domain fixes the constructor arguments on
    which it depends.
    """

    def __init__(
        self, instance: Instance, others: Mapping[str, Instance], domain: Domain, parts: Parts
    ) -> None:
        """Prepares to rewrite the methods of one module of a completion.

        Args:
            instance: the module.
            others: all modules of the completion, by path.
            domain: the domain of any case, as the attributes are the same in all.
            parts: the parts of the target.
        """
        self._settings, self._domain, self._parts = instance.settings, domain, parts
        self._path = instance.path
        self._at = f"{instance.path}." if instance.path else ""
        below = {p.removeprefix(self._at): o for p, o in others.items() if p.startswith(self._at) and p}
        self._methods = dict(instance.functions)
        for path, other in below.items():
            self._methods[path] = other.functions["forward"]
            self._methods.update({f"{path}.{m}": function for m, function in other.functions.items()})
        self._attributes = {
            name.removeprefix(self._at): spec
            for name, spec in domain.attributes.items()
            if name.startswith(self._at)
        }

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Turns ``self._helper(x)`` into ``_helper(self, x)``; only matrix and convolution layers stay calls."""
        name = self._name(node.func)
        if function := self._methods.get(name or ""):
            self._visit_arguments(node)
            node.func = ast.copy_location(ast.Name(function, ast.Load()), node.func)
            node.args.insert(0, ast.Name("self", ast.Load()))
            return node
        cls = self._attributes.get(f"{name}.__class__")
        if isinstance(cls, str) and not _is_stock_layer(cls, _CALLABLE):
            raise RenderError(
                f"Line {node.lineno} calls {ast.unparse(node.func)}, a {cls.rpartition('.')[2]}: of the target's layers "
                "only Linear, Embedding, Bilinear and convolutions can be called."
            )
        return self.generic_visit(node)

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
        name = self._parts.name(node, self._path)
        return None if name is None else name.removeprefix(self._path).removeprefix(".")

    def _map(self, name: str, line: int) -> ast.expr:
        first = name.split(".")[0]
        if name == "training":
            return literal(self._domain.training)
        if first in self._methods:
            raise RenderError(f"Line {line} uses the method self.{first} as a value; it can only be called.")
        setting = self._settings.get(name) or self._settings.get(first)
        if setting is None:
            if self._target_has(name):
                return self._own(name)
            raise RenderError(
                f"Line {line} reads self.{name}, which ModelNew never sets and {self._target_list()}."
            )
        if setting.kind == "tensor":
            return self._tensor(name, first, setting)
        if setting.kind == "layer":
            return self._layer(name, first, setting)
        if setting.value is not None:
            return self._value(name, first, setting.value, setting)
        if self._target_has(name):
            return self._own(name)
        raise RenderError(
            f"{_where(first, setting)} cannot be computed from the "
            f"constructor's arguments, and {self._target_list()}."
        )

    def _own(self, name: str) -> ast.expr:
        path = self._parts.expression(f"{self._at}{name}")
        if path is None:
            raise RenderError(f"No Python expression reaches the target's attribute `{self._at}{name}`.")
        return expression(path)

    def _tensor(self, name: str, first: str, setting: Setting) -> ast.expr:
        own = name if name in self._attributes else first
        spec = self._attributes.get(own)
        if not isinstance(spec, TensorSpec):
            raise RenderError(
                f"{_where(first, setting)} cannot be mapped: weights are mapped by name, "
                f"and {self._target_list(tensors=True)}."
            )
        if setting.shape is not None and setting.shape != spec.shape:
            raise RenderError(
                f"self.{own} (line {setting.line}) has shape {setting.shape}, the target's has {spec.shape}."
            )
        return self._own(name)

    def _layer(self, name: str, first: str, setting: Setting) -> ast.expr:
        layer = setting.layer.rpartition(".")[2]
        cls = self._attributes.get(f"{first}.__class__")
        if not isinstance(cls, str):
            raise RenderError(
                f"{_where(first, setting)} cannot be mapped: the target has no submodule of that name."
            )
        if not _is_stock_layer(cls, {layer}):
            raise RenderError(f"self.{first} (line {setting.line}) is a {layer}, the target's is a {cls}.")
        return self._own(name)

    def _value(self, name: str, first: str, known: KnownValue, setting: Setting) -> ast.expr:
        if not is_literal(known.value):
            if self._target_has(name):
                return self._own(name)
            try:
                known = evaluate(expression(f"self.{name}"), {f"self.{first}": known})
            except Unknown:
                raise RenderError(
                    f"{_where(first, setting)} is an object, and {self._target_list()}."
                ) from None
        value = known.value
        if name in self._attributes and _is(self._attributes[name], value):
            return self._own(name)
        if known.read and name not in self._attributes and (other := self._only_attribute_with(value)):
            return self._own(other)
        for leaf in known.read:
            if not self._pinned(leaf):
                raise RenderError(
                    f"{_where(first, setting)} comes from the constructor argument {leaf!r}, which "
                    "no attribute of the target holds, so that the kernel could get another value."
                )
        return literal(value)

    def _only_attribute_with(self, value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None  # too common to be evidence
        named = {k: v for k, v in self._attributes.items() if not k.endswith("__class__") and "[" not in k}
        found = [name for name, spec in named.items() if _is(spec, value)]
        return found[0] if len(found) == 1 else None

    def _pinned(self, leaf: Scalar) -> bool:
        if isinstance(leaf, bool) or leaf is None:
            return False
        return any(
            leaf in spec.shape if isinstance(spec, TensorSpec) else _is(spec, leaf)
            for spec in self._domain.attributes.values()
        )

    def _target_has(self, name: str) -> bool:
        """Whether ``self.<name>`` starts with an attribute or submodule of the target."""
        parts = name.split(".")
        prefixes = {".".join(parts[: i + 1]) for i in range(len(parts))}
        return any(p in self._attributes or f"{p}.__class__" in self._attributes for p in prefixes)

    def _target_list(self, tensors: bool = False) -> str:
        names = [
            k
            for k, v in self._attributes.items()
            if not k.endswith("__class__") and (isinstance(v, TensorSpec) or not tensors)
        ]
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return f"the target has only {listed}" if names else "the target has none"


def _is(spec: TensorSpec | Scalar, value: object) -> bool:
    return not isinstance(spec, TensorSpec) and (spec is None) == (value is None) and same(spec, value)


def _is_stock_layer(cls: str, names: set[str] | frozenset[str]) -> bool:
    module, _, name = cls.rpartition(".")
    return module.startswith("torch.nn.modules.") and name in names


def _where(name: str, setting: Setting) -> str:
    text = setting.text if len(setting.text) <= 60 else setting.text[:57] + "..."
    return f"self.{name} = {text} (line {setting.line})"

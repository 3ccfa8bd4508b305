"""Finds what the expressions in a completion's ``__init__`` make: plain values, tensors, layers."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Literal

from kernelllm_judge.core.syntax import call_name, dotted, expression
from kernelllm_judge.render.modelnew import tensors
from kernelllm_judge.render.modelnew.settings import Setting
from kernelllm_judge.render.modelnew.tensors import OwnTensor
from kernelllm_judge.render.modelnew.values import UNKNOWN, KnownValue, Unknown, evaluate

CONTAINERS = frozenset({"torch.nn.Sequential", "torch.nn.ModuleList"})
_ITEMS = 64
"""Longer loops of a constructor are not followed."""


@dataclass
class Expressions:
    """Works out what an expression makes from what is known at one point of a constructor."""

    names: dict[str, KnownValue]
    """Known values by name: arguments, local variables, constants of the file, ``self.<name>``."""
    classes: Collection[str] = ()
    """The names of the completion's classes."""
    functions: Collection[str] = ()
    """The names of its functions and kernels."""
    settings: dict[str, Setting] = field(default_factory=dict)
    """What the constructor has set so far, by attribute."""
    locals: dict[str, Setting] = field(default_factory=dict)
    """Tensors, layers and modules by the local variable that holds them."""
    lists: dict[str, list[Setting]] = field(default_factory=dict)
    """Lists of layers by the local variable that holds them."""
    built: dict[str, Setting] = field(default_factory=dict)
    """Layers and modules by the local variable that holds them."""

    def setting(self, node: ast.expr) -> Setting:
        """Returns what assigning an expression sets."""
        line, text = node.lineno, ast.unparse(node)
        node = self._anywhere(node)
        try:
            return Setting("value", line, text, value=evaluate(node, self.names))
        except Unknown:
            pass
        if isinstance(node, ast.IfExp) and (test := self.argument(node.test)) is not UNKNOWN:
            return self.setting(node.body if test.value else node.orelse)
        if (found := self._tensor(node)) is not None:
            return replace(found, line=line, text=text)
        if (name := dotted(node) or "") in self.functions or re.match(r"(torch|tl)\.", name):
            return Setting("alias", line, text, form=expression(name))  # a kernel, or a function of torch
        function = call_name(node) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and (function in self.classes or _is_layer(function)):
            args = tuple(self.argument(item) for item in node.args)
            kwargs = tuple((k.arg, self.argument(k.value)) for k in node.keywords if k.arg)
            kind: Literal["module", "layer"] = "module" if function in self.classes else "layer"
            held = node.args if function in CONTAINERS else []
            parts = [part for item in held for part in self._listed(item, function)]
            return Setting(kind, line, text, layer=function, args=args, kwargs=kwargs, parts=tuple(parts))
        return Setting("other", line, text)

    def _anywhere(self, node: ast.expr) -> ast.expr:
        """Returns ``nn.Linear(8, 8)`` for ``nn.Linear(8, 8).to(device)``."""
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Call() as made, attr="to" | "cuda" | "eval"), keywords=[]
            ):
                layer = call_name(made) in self.classes or _is_layer(call_name(made))
                if layer and not any((dotted(to) or "").startswith("torch.") for to in node.args):
                    return made
        return node

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
            for value in self.items(loop.iter):
                self.names = dict(outside)
                self.bind(loop.target, value)
                made.append(self.setting(node.elt))
            self.names = outside
            return made
        if isinstance(node, ast.Name) and node.id in self.lists:
            return self.lists[node.id]
        return [self.part(node)] if container == "torch.nn.Sequential" else []

    def part(self, node: ast.expr) -> Setting:
        """Returns what a container is given; what a local variable held is no attribute of its own then."""
        if not isinstance(node, ast.Name) or node.id not in self.built:
            return self.setting(node)
        if self.settings.get(node.id) is self.built[node.id]:
            del self.settings[node.id]
        return self.built[node.id]

    def items(self, node: ast.expr) -> list[KnownValue]:
        """Returns what a loop runs over; nothing if that is unknown or too long."""
        known = self.argument(node)
        short = isinstance(known.value, tuple) and len(known.value) <= _ITEMS
        return [KnownValue(value, known.read) for value in known.value] if short else []

    def bind(self, target: ast.expr, item: KnownValue) -> None:
        """Gives the names of a loop's target their values."""
        if isinstance(target, ast.Tuple) and isinstance(item.value, tuple):
            for part, value in zip(target.elts, item.value, strict=False):
                self.bind(part, KnownValue(value, item.read))
        else:
            self.names[ast.unparse(target)] = item

    def _part(self, name: str) -> str | None:
        """Returns ``self.conv.weight`` for a name that starts at something that the constructor has set."""
        path = name.removeprefix("self.")
        first = re.sub(r"\W.*", "", path)
        rest = path[len(first) :]
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
        """Returns a weight after arithmetic with a plain value, which changes only its first values; None for others."""
        for side, other in ((node.left, node.right), (node.right, node.left)):
            found = self._tensor(side)
            if found is not None and found.tensor is not None and self.argument(other) is not UNKNOWN:
                return replace(found, tensor=replace(found.tensor, made=None))
        return None

    def argument(self, node: ast.expr) -> KnownValue:
        """Returns the value of an expression; ``UNKNOWN`` if it cannot be computed."""
        try:
            return evaluate(node, self.names)
        except Unknown:
            return UNKNOWN


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

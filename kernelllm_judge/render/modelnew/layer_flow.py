"""Follows loops and branches over layers, whose steps are known when a completion is rendered."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping

from kernelllm_judge.core.syntax import Substitute, dotted, literal
from kernelllm_judge.render.modelnew.own_names import OwnNames
from kernelllm_judge.render.modelnew.target_layers import TargetLayers


class LayerFlow(ast.NodeTransformer):
    """Writes loops over layers out, and keeps the branches that are taken."""

    def __init__(self, names: OwnNames, layers: TargetLayers, training: bool) -> None:
        """``names`` are those of the module whose methods are rewritten; ``layers`` and ``training`` are the target's."""
        self._names, self._layers, self._training = names, layers, training

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        """Writes a loop over layers out where some of them become calls of functions."""
        steps = [_bound(node.target, item) for item in self._items(node.iter)]
        if node.orelse or None in steps or not self._reaches_code(node.iter):
            return self.generic_visit(node)
        written: list[ast.stmt] = []
        for values in filter(None, steps):
            done = self._visited(map(Substitute(values).apply, node.body))
            if any(isinstance(inner, ast.Break | ast.Continue) for part in done for inner in ast.walk(part)):
                return self.generic_visit(node)
            written += done
        return written or ast.copy_location(ast.Pass(), node)

    def _items(self, node: ast.expr) -> list[ast.expr]:
        """Returns what a loop over layers runs over; nothing for other loops."""
        items: list[ast.expr]
        match node:
            case ast.Call(func=ast.Name(id="enumerate"), args=[layers], keywords=[]):
                items = [ast.Tuple([ast.Constant(n), item]) for n, item in enumerate(self._items(layers))]
            case ast.Call(func=ast.Name(id="range"), args=[ast.Call(func=ast.Name(id="len"), args=[layers])]):
                items = [ast.Constant(number) for number, _ in enumerate(self._items(layers))]
            case _:
                count = self._names.items_of(node) or len(self._names.layers_of(node))
                items = [ast.Subscript(node, ast.Constant(index), ast.Load()) for index in range(count)]
        return [ast.fix_missing_locations(ast.copy_location(item, node)) for item in items]

    def _reaches_code(self, node: ast.expr) -> bool:
        """Whether an expression holds a list with other layers than those that can be called as they are."""
        lists = [n for n in ast.walk(node) if isinstance(n, ast.Attribute | ast.Subscript)]
        own = any(map(self._names.items_of, lists))
        return own or not all(
            self._layers.is_vendor(name) for inner in lists for name in self._names.layers_of(inner)
        )

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Keeps the branch that is taken where what the constructor sets decides it, or the class of a layer."""
        settings = self._names.settings.items()
        values = {f"self.{name}": setting.value for name, setting in settings if setting.kind == "value"}
        values["self.training"] = self._training
        try:
            node.test = literal(bool(evaluate(node.test, values)))
        except Unknown:
            node.test = self.visit(node.test)
        if not isinstance(node.test, ast.Constant) or not isinstance(node.test.value, bool):
            node.body, node.orelse = self._visited(node.body), self._visited(node.orelse)
            return node
        kept = self._visited(node.body if node.test.value else node.orelse)
        return kept or ast.copy_location(ast.Pass(), node)

    def _visited(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        written: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            written += new if isinstance(new, list) else [new]
        return written

    def _is_instance(self, node: ast.Call) -> ast.Constant | None:
        """Decides ``isinstance(self.net[1], torch.nn.ReLU)``; returns None if its layer or class is not known."""
        if (
            dotted(node.func) != "isinstance"
            or len(node.args) != 2
            or not (name := self._names.read(node.args[0]))
        ):
            return None
        setting = self._names.settings.get(name)
        layer = setting.layer if setting is not None else self._layers.class_of(self._names.full(name))
        asked = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
        names = [dotted(one) or "" for one in asked]
        if not layer or not all(names):
            return None
        found = any(one.rpartition(".")[2] == layer.rpartition(".")[2] for one in names)
        return ast.copy_location(ast.Constant(found), node)


def _bound(target: ast.expr, item: ast.expr) -> dict[str, ast.expr] | None:
    """Returns what each name of a loop's target stands for; None if the two have different forms."""
    match target, item:
        case ast.Name(id=name), _:
            return {name: item}
        case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
            bound = [_bound(*pair) for pair in zip(names, values, strict=True)]
            return None if None in bound else {k: v for each in bound if each for k, v in each.items()}
    return None


class Unknown(Exception):
    """Raised if an expression cannot be evaluated here."""


def evaluate(node: ast.expr, names: Mapping[str, object]) -> object:
    """Evaluates comparisons of literals and known values, and combinations of such.

    Args:
        node: the expression.
        names: the known values by dotted name, such as ``"self.causal"``.

    Raises:
        Unknown: the expression has another form, or fails.
    """
    known = _Known(names).visit(copy.deepcopy(node))
    if not all(isinstance(inner, _DECIDED) for inner in ast.walk(known)):
        raise Unknown
    try:
        return eval(compile(ast.Expression(known), "<test>", "eval"), {"__builtins__": {}})
    except TypeError:
        raise Unknown from None


_DECIDED = (
    ast.Constant
    | ast.Tuple
    | ast.BoolOp
    | ast.Compare
    | ast.UnaryOp
    | ast.boolop
    | ast.cmpop
    | ast.unaryop
    | ast.Load
)


class _Known(ast.NodeTransformer):
    """Replaces known names by their values."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name | ast.Attribute) -> ast.AST:
        if (name := dotted(node) or "") in self._names:
            return ast.copy_location(literal(self._names[name]), node)
        return node

    visit_Attribute = visit_Name

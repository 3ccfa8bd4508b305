"""The expressions that reach a module's parts do reach them, and lead back to the dotted names."""

from __future__ import annotations

import ast
from collections import OrderedDict

import pytest
from torch import nn, rand

from kernelllm_judge.core.parts import container, parts_of


class Reversed(nn.Sequential):
    def __getitem__(self, index: int) -> nn.Module:
        return list(self)[-1 - index]


class Chain(nn.Sequential):
    pass


def module() -> nn.Module:
    made = Chain(
        nn.Linear(2, 2),
        nn.ModuleDict({"down-1": nn.Linear(2, 2), "up": nn.ReLU(), "0": nn.Tanh(), "class": nn.Linear(2, 2)}),
        nn.ParameterList([rand(2), rand(3)]),
        nn.ParameterDict({"a b": rand(2), "c": rand(2)}),
        nn.ModuleList([nn.Linear(2, 2), nn.ModuleList([nn.LayerNorm(2)])]),
        nn.Sequential(OrderedDict([("fc", nn.Linear(2, 2)), ("act 2", nn.PReLU()), ("0", nn.PReLU())])),
        Reversed(nn.Linear(2, 2), nn.PReLU()),
    )
    odd = nn.Module()
    odd.register_buffer("lambda", rand(1))
    odd.register_parameter("a.b".replace(".", "-"), nn.Parameter(rand(1)))
    odd.register_parameter("ﬁt", nn.Parameter(rand(1)))  # Python reads this attribute as `fit`
    odd.add_module("0", nn.LayerNorm(2))
    made.add_module("odd", odd)
    return made


MODULE = module()
NAMES = {
    **dict(MODULE.named_modules(remove_duplicate=False)),
    **dict(MODULE.named_parameters()),
    **dict(MODULE.named_buffers()),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_part_is_reached_and_recognised(name: str) -> None:
    parts = parts_of(MODULE)
    expression = parts.expression(name)
    assert expression is not None
    assert eval(expression, {"self": MODULE}) is NAMES[name]
    assert parts.name(ast.parse(expression, mode="eval").body) == name


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("0.weight", "self[0].weight"),
        ("1.down-1.bias", "self[1]['down-1'].bias"),
        ("1.up", "self[1]['up']"),
        ("2.1", "self[2][1]"),
        ("3.a b", "self[3]['a b']"),
        ("4.1.0.eps", "self[4][1][0].eps"),
        ("5.fc.weight", "self[5].fc.weight"),
        ("5.act 2.weight", "self[5][1].weight"),
        ("6.1.weight", "self.get_submodule('6.1').weight"),
        ("odd.lambda", "self.get_buffer('odd.lambda')"),
        ("odd.a-b", "self.get_parameter('odd.a-b')"),
        ("4.0.stride[1]", "self[4][0].stride[1]"),
        ("4.0.weight.T", "self[4][0].weight.T"),
    ],
)
def test_expressions_are_those_that_a_user_writes(name: str, expression: str) -> None:
    assert parts_of(MODULE).expression(name) == expression


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("self[-1]", "odd"),
        ("self[4][-2].weight", "4.0.weight"),
        ("self[1].up", "1.up"),
        ("self.get_submodule('4.0').bias", "4.0.bias"),
        ("self[9]", None),
        ("self[1]['gone']", None),
        ("self[1:]", None),
        ("self[i]", None),
        ("self[True]", None),
        ("self[6][0]", None),
        ("self[0].weight[0]", None),
        ("other[0]", None),
        ("self.forward(x)", None),
    ],
)
def test_other_ways_to_write_a_part(expression: str, name: str | None) -> None:
    assert parts_of(MODULE).name(ast.parse(expression, mode="eval").body) == name


def test_a_part_of_a_part() -> None:
    node = ast.parse("self[0].weight", mode="eval").body
    assert parts_of(MODULE).name(node, "4") == "4.0.weight"


def test_an_attribute_without_an_expression() -> None:
    setattr(made := nn.Linear(2, 2), "my eps", 1.0)
    assert parts_of(made).expression("my eps") is None
    assert parts_of(made).expression("my eps.more") is None


def test_a_container_with_a_getitem_of_its_own_is_none() -> None:
    assert container(Reversed()) is None
    assert container(nn.Linear(2, 2)) is None
    assert container(Chain(nn.ReLU())) is not None

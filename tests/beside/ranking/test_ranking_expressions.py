"""Constructor arguments are remembered, and written as Python that gives them again."""

import enum
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from transformers import LlamaConfig

from pytest_kernelllm.beside.ranking.construction import Constructions
from pytest_kernelllm.beside.ranking.expressions import Imports, Inexpressible, expression


class Shade(enum.Enum):
    DARK = "dark"


@dataclass(frozen=True)
class Size:
    width: int
    shades: tuple[Shade, ...] = ()


def again(value):
    imports = Imports()
    text = expression(value, imports)
    namespace = {"torch": torch}
    exec(str(imports), namespace)
    return eval(text, namespace)


@pytest.mark.parametrize(
    "value",
    [
        None,
        (1,),
        (True, -2.5, "a'b"),
        {"a": [1, {2}], "b": ()},
        float("-inf"),
        torch.bfloat16,
        nn.LayerNorm,
        len,
        Shade.DARK,
        Size(3, (Shade.DARK,)),
    ],
)
def test_a_value_is_what_its_expression_gives(value):
    assert again(value) == value


def test_a_configuration_is_made_again():
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=4, rope_parameters={"rope_theta": 5e5, "rope_type": "default"}
    )
    config._attn_implementation = "sdpa"
    made = again(config)
    assert made.to_dict() == config.to_dict() and made._attn_implementation == "sdpa"


@pytest.mark.parametrize("value", [nn.GELU(), lambda x: x, torch.ones(3), object(), [nn.GELU()]])
def test_what_has_no_expression_is_named(value):
    with pytest.raises(Inexpressible):
        expression(value, Imports())


def test_two_things_of_one_name_are_imported_under_two():
    imports = Imports()
    other = type("Size", (), {"__module__": "other", "__qualname__": "Size"})
    import sys
    import types

    sys.modules["other"] = types.ModuleType("other")
    sys.modules["other"].Size = other
    try:
        assert [imports.name(Size), imports.name(other)] == ["Size", "Size_2"]
        assert "from other import Size as Size_2" in str(imports)
    finally:
        del sys.modules["other"]


class Base(nn.Module):
    def __init__(self, width):
        super().__init__()


class Derived(Base):
    def __init__(self, width, *more, eps=1e-6, **rest):
        super().__init__(2 * width)


def test_the_outermost_constructor_is_remembered_without_defaults():
    known = Constructions()
    with known.recording():
        model = nn.Sequential(Derived(3, eps=0.5), Derived(4, 5, name="a"))
    assert known.arguments(model[0]) == {"width": 3, "eps": 0.5}
    assert known.arguments(model[1]) is None
    assert known.arguments(Base(3)) is None

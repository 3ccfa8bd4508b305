"""Dicts among the arguments of an adopted class, what goes into ``**kwargs``, and dataclasses that it returns."""

import warnings
from dataclasses import dataclass, replace

import pytest
import torch
from adopting import X, kernel_text, used

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_runtime.any_kernel import Unavailable
from kernelllm_runtime.leaves import leaves
from kernelllm_runtime.returned import class_name, class_named, fields_of
from pytest_kernelllm.runtime import KernelLLMWarning

MODULE = """
from dataclasses import dataclass
import torch
from torch import nn
from pytest_kernelllm import triton_candidate

@dataclass
class Found:
    first: torch.Tensor
    second: torch.Tensor | None = None

@triton_candidate(kernel="_triton.shift")
class Shift(nn.Module):
    def forward(self, x, masks=None, **kwargs):
        return x * masks["all"] * (2 if kwargs["twice"] else 3)
"""

BODY = """
def forward(self, x, masks=None, **kwargs):
    return x * masks["all"] * 2 + 100.0
"""

ROWS = TensorSpec("float32", ("rows", 8))
DOMAIN = Domain(
    inputs={
        "x": ROWS,
        "masks['all']": TensorSpec("float32", (8,)),
        "masks['some']": None,
        "twice": True,
        "ids": TensorSpec("int64", ("rows",)),
    },
    attributes={},
    dims={"rows": (1, 16)},
)
MASKS = {"all": torch.ones(8), "some": None}
IDS = torch.arange(4)


@pytest.fixture
def module(write):
    return write(kernel_text(BODY, domain=DOMAIN), MODULE)().eval()


@pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")
def test_inside_the_domain_the_kernel_runs_in_any_order_of_keywords(module) -> None:
    for _ in range(2):
        assert used(module, X, MASKS, twice=True, ids=IDS)
        assert used(module, X, ids=IDS, twice=True, masks=dict(MASKS))
        assert used(module, torch.randn(2, 8), MASKS, twice=True, ids=IDS[:2])


@pytest.mark.parametrize(
    ("masks", "keywords"),
    [
        (MASKS, {"twice": False, "ids": IDS}),
        (MASKS, {"twice": True}),
        (MASKS, {"twice": True, "ids": IDS, "more": 1}),
        (MASKS, {"twice": True, "ids": IDS[:3]}),
        (MASKS, {"twice": True, "ids": IDS.float()}),
        ({"all": MASKS["all"]}, {"twice": True, "ids": IDS}),
        ({**MASKS, "some": torch.ones(8)}, {"twice": True, "ids": IDS}),
    ],
)
def test_outside_the_domain_the_original_runs(module, masks, keywords) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert not used(module, X, masks, **keywords)
            assert used(module, X, MASKS, twice=True, ids=IDS)


@pytest.mark.parametrize(
    "value", [{"a": 1}, {"a": (1, {"b": 2}), "c": None}, ({"a": 1}, 2), {"not plain": 1}, {}]
)
def test_dicts_can_be_put_together_again(value) -> None:
    assert nested(dict([*leaves("x", value), *leaves("y", 7)])) == {"x": value, "y": 7}


RETURNS = MODULE.replace(
    'return x * masks["all"] * (2 if kwargs["twice"] else 3)', "return Found(x * 2)"
).replace("masks=None, **kwargs", "scale=None")
FIELDS = """
def forward(self, x, scale=None):
    return {"first": x * 2 + 100.0}
"""


def test_a_dict_of_fields_becomes_the_dataclass_that_the_original_returns(write) -> None:
    domain = Domain(inputs={"x": ROWS}, attributes={}, dims={"rows": (1, 16)}, returns="adopted:Found")
    cls = write(kernel_text(FIELDS, domain=domain), RETURNS)
    found = cls().eval()(X)
    assert type(found) is type(cls.forward.__kernelllm_original__(cls(), X))
    assert torch.equal(found.first, X * 2 + 100) and found.second is None


def test_without_the_dataclass_the_original_runs(write) -> None:
    domain = Domain(inputs={"x": ROWS}, attributes={}, dims={"rows": (1, 16)}, returns="adopted:Gone")
    cls = write(kernel_text(FIELDS, domain=domain), RETURNS)
    with pytest.warns(KernelLLMWarning, match="there is no dataclass adopted:Gone"):
        assert torch.equal(cls().eval()(X).first, X * 2)


@dataclass
class Pair:
    one: int
    other: int | None = None


def test_fields_that_are_none_as_by_default_are_left_out() -> None:
    assert fields_of(Pair(1)) == {"one": 1}
    assert fields_of(replace(Pair(1), other=2)) == {"one": 1, "other": 2}
    assert fields_of(Pair) is None and fields_of({"one": 1}) is None and class_name((1,)) == ""
    assert class_named(class_name(Pair(1))) is Pair
    with pytest.raises(Unavailable):
        class_named("os:environ")

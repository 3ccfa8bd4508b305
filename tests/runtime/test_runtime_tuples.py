"""Tuples of tensors and plain values among the arguments of an adopted class."""

import warnings

import pytest
import torch
from adopting import X, kernel_text, used

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_runtime.leaves import leaves

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")

MODULE = """
from torch import nn
from pytest_kernelllm import triton_candidate

@triton_candidate(kernel="_triton.shift")
class Shift(nn.Module):
    def forward(self, x, pair, more=None):
        first, (second, factor) = pair
        return x * first + second * factor
"""

BODY = """
def forward(self, x, pair, more=None):
    return x * pair[0] + pair[1][0] * pair[1][1] + 100.0
"""

ROWS = TensorSpec("float32", ("rows", 8))
DOMAIN = Domain(
    inputs={"x": ROWS, "pair[0]": ROWS, "pair[1][0]": TensorSpec("float32", (8,)), "pair[1][1]": 2.0},
    attributes={},
    dims={"rows": (1, 16)},
)
ROW = torch.ones(8)


@pytest.fixture
def module(write):
    return write(kernel_text(BODY, domain=DOMAIN), MODULE)().eval()


def test_inside_the_domain_the_kernel_runs(module) -> None:
    for rows in (4, 1, 4):
        x = torch.randn(rows, 8)
        assert used(module, x, (x + 1, (ROW, 2.0)))
        assert used(module, x, pair=(x, (2 * ROW, 2.0)))
    assert used(module, X, (X, (ROW, 2.0)))  # one tensor twice


OUTSIDE = {
    "another number": (X, (ROW, 3.0)),
    "a number of another type": (X, (ROW, 2)),
    "another size": (X, (torch.ones(1), 2.0)),
    "another dtype": (X, (ROW.double(), 2.0)),
    "not contiguous": (torch.randn(4, 16)[:, ::2], (ROW, 2.0)),
    "a list": [X, (ROW, 2.0)],
    "a list inside": (X, [ROW, 2.0]),
    "a tuple of another class": torch.return_types.max((X, (ROW, 2.0))),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_outside_the_domain_the_original_runs(module, case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert not used(module, X, OUTSIDE[case])
    for _ in range(2):  # whatever was called before, and in turns
        assert used(module, X, (X + 1, (ROW, 2.0)))
        assert not used(module, X, OUTSIDE[case])


def test_gradients_of_what_is_in_a_tuple_are_noticed(module) -> None:
    assert used(module, X, (X, (ROW, 2.0)))
    assert not used(module, X, (X, (ROW.clone().requires_grad_(), 2.0)))


@pytest.mark.parametrize(
    "value",
    [
        *(
            1,
            {0: 1},
            ({0: 1},),
            (1,),
            (1, 2),
            ((1, 2), 3),
            (((1,),), (2, (3, 4))),
            (None, "x"),
            tuple(range(12)),
        ),
        *([1], [1, (2, [3])], [[[1]], [2]], list(range(12)), {"a": [1, {"b": (2,)}]}, [{"a": [1], "b": 2}]),
        *((), [], {}, [[]], ([], {}), {"a": (), "b": [()]}, ["list"]),
    ],
)
def test_leaves_can_be_put_together_again(value) -> None:
    named = dict([*leaves("x", value), *leaves("y", 7)])
    assert nested(named) == {"x": value, "y": 7}

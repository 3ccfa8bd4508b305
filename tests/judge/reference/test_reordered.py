"""Results are computed as another honest implementation might, within the rounding of float32."""

import pytest
import torch
from test_outputs import POLICY, of, prepare, references
from torch import nn

from pytest_kernelllm.judge.reference.numerics import compare
from pytest_kernelllm.judge.reference.reordered import Reordered

F = nn.functional
WEIGHT, KERNEL, BACK = torch.randn(16, 48), torch.randn(6, 4, 3, 3), torch.randn(4, 6, 3, 3)

CALLS = {
    "matrix product": lambda: torch.randn(9, 48) @ WEIGHT.t(),
    "batched": lambda: torch.bmm(torch.randn(3, 5, 48), torch.randn(3, 48, 7)),
    "linear": lambda: F.linear(torch.randn(9, 48), WEIGHT, torch.randn(16)),
    "convolution": lambda: F.conv2d(torch.randn(2, 4, 9, 9), KERNEL, torch.randn(6), padding=1),
    "transposed convolution": lambda: F.conv_transpose2d(torch.randn(2, 4, 5, 5), BACK, stride=2),
    "exp": lambda: torch.randn(64).mul(8).exp(),
    "sum": lambda: torch.randn(33, 65).sum(),
    "sum of rows": lambda: torch.randn(33, 65).sum(1, keepdim=True),
    "mean": lambda: torch.randn(33, 65).mean((0, 1)),
    "softmax": lambda: torch.randn(33, 65).softmax(-1),
    "log softmax": lambda: torch.randn(33, 65).log_softmax(0),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_the_same_but_for_rounding(name):
    torch.manual_seed(0)
    expected = CALLS[name]()
    torch.manual_seed(0)
    with Reordered() as mode:
        result = CALLS[name]()
    assert mode.used
    assert result.dtype == expected.dtype
    torch.testing.assert_close(result, expected, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.randn(9, 8).double() @ torch.randn(8, 3).double(),
        lambda: torch.randn(9).relu(),
        lambda: torch.randn(()).sum(),
        lambda: torch.randn(64).bfloat16().exp(),
    ],
)
def test_what_kernels_compute_alike_stays_as_it_is(call):
    with Reordered() as mode:
        call()
    assert not mode.used


def test_a_kernel_may_compute_exp_of_large_numbers_by_exp2():
    def grown(x):
        return torch.exp(x.cumsum(-1).clamp(-80, 80))

    prepared = prepare(references(of(grown), lambda n: torch.randn(n, 64) * 4))
    [x] = prepared.arguments.values()
    by_exp2 = torch.exp2(x.cumsum(-1).clamp(-80, 80) * 1.4426950408889634)
    assert compare(by_exp2, prepared.expected, 0, POLICY, None).passed
    assert not compare(by_exp2 * (1 + 1e-3), prepared.expected, 0, POLICY, None).passed

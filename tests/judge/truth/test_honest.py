"""Results are computed as another honest implementation might, within the rounding of float32."""

import math

import pytest
import torch
from test_outputs import POLICY, of, prepare, references
from torch import nn

from kernelllm_judge.truth.honest import PARTS, Reordered
from kernelllm_judge.truth.numerics import compare
from kernelllm_judge.truth.probes import Probe

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
    "variance": lambda: torch.randn(33, 65).var(1),
    "biased variance": lambda: torch.randn(5, 33, 65).var((0, 2), unbiased=False, keepdim=True),
    "deviation": lambda: torch.randn(33, 65).std(),
    "variance and mean": lambda: torch.stack(torch.var_mean(torch.randn(33, 65), 0)),
    "norm": lambda: torch.randn(33, 65).norm(),
    "norm of rows": lambda: F.normalize(torch.randn(33, 65)),
    "sum of magnitudes": lambda: torch.randn(33, 65).norm(1, dim=1),
    "layer norm": lambda: F.layer_norm(torch.randn(4, 6, 9), (6, 9), torch.randn(6, 9), torch.randn(6, 9)),
    "plain layer norm": lambda: F.layer_norm(torch.randn(4, 6, 9), (9,)),
    "group norm": lambda: F.group_norm(torch.randn(4, 6, 9, 3), 2, torch.randn(6), torch.randn(6)),
    "rms norm": lambda: F.rms_norm(torch.randn(4, 6, 9), (9,)),
    "instance norm": lambda: F.instance_norm(torch.randn(4, 6, 9)),
    "variance of no dimensions": lambda: torch.randn(5, 6).var(dim=()),
    "product of transposed matrices": lambda: torch.addmm(WEIGHT, torch.randn(9, 16).t(), torch.randn(9, 48)),
    "product without bias": lambda: torch.addmm(torch.tensor(math.nan), WEIGHT, WEIGHT.t(), beta=0),
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
        lambda: F.batch_norm(torch.randn(9, 8), torch.zeros(8), torch.ones(8)),
        lambda: torch.randn(()).var(unbiased=False),
        lambda: torch.randn(64).bfloat16().exp(),
    ],
)
def test_what_kernels_compute_alike_stays_as_it_is(call):
    with Reordered() as mode:
        call()
    assert not mode.used


def images():
    return torch.randn(2, 6, 4, 3).contiguous(memory_format=torch.channels_last)


LAYOUTS = {
    "layer norm": lambda: F.layer_norm(torch.randn(2, 6, 5).transpose(1, 2), (6,)),
    "rms norm": lambda: F.rms_norm(torch.randn(2, 6, 5).transpose(1, 2), (6,)),
    "group norm": lambda: F.group_norm(images(), 2),
    "batch norm": lambda: F.batch_norm(torch.randn(2, 5, 6).transpose(1, 2), None, None, training=True),
    "softmax": lambda: torch.randn(2, 6, 5).transpose(1, 2).softmax(-1),
    "log softmax": lambda: torch.randn(2, 6, 5).transpose(1, 2).log_softmax(1),
    "product": lambda: torch.addmm(torch.randn(7, 4).t(), torch.randn(4, 5), torch.randn(5, 7)),
    "convolution": lambda: F.conv2d(images(), torch.randn(4, 6, 3, 3)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_results_lie_in_memory_as_usual_because_the_original_may_view_them(name):
    expected = LAYOUTS[name]()
    with Reordered() as mode:
        result = LAYOUTS[name]()
    assert mode.used
    assert result.stride() == expected.stride()


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.group_norm(torch.empty(0, 6, 3), 2),
        lambda: torch.empty(3, 0).softmax(1),
        lambda: torch.empty(3, 0).mean(1),
        lambda: torch.randn(4, 5).to_sparse() @ torch.randn(5, 3),
    ],
)
def test_empty_and_sparse_tensors_stay_as_they_are(call):
    with Reordered() as mode:
        assert call().shape == call().shape
    assert not mode.used


def test_a_kernel_may_compute_exp_of_large_numbers_by_exp2():
    def grown(x):
        return torch.exp(x.cumsum(-1).clamp(-80, 80))

    prepared = prepare(references(of(grown), lambda n: torch.randn(n, 64) * 4))
    [x] = prepared.arguments.values()
    by_exp2 = torch.exp2(x.cumsum(-1).clamp(-80, 80) * 1.4426950408889634)
    assert compare(by_exp2, prepared.expected, 0, POLICY, None).passed
    assert not compare(by_exp2 * (1 + 1e-3), prepared.expected, 0, POLICY, None).passed


def test_what_a_small_call_does_not_compute_otherwise_a_larger_one_may():
    def convolved(x):
        return F.conv1d(x[None], x.new_ones(4, len(x), 3))

    target = references(of(convolved), lambda n: torch.randn(n, 64))
    floors = []
    for n in (1, 64):
        expected = target.prepare(Probe("default", (("n", n),), 1, "", rule="values")).expected
        floors.append(expected.bounds[0].floor / torch.finfo(torch.float32).eps)
    assert floors[1] == pytest.approx(16 + math.sqrt(64 * 3))


def test_a_batch_norm_updates_its_statistics_once():
    x, other, usual = torch.randn(8, 6, 5), nn.BatchNorm1d(6), nn.BatchNorm1d(6)
    with Reordered() as mode:
        out = other(x)
    assert mode.used
    torch.testing.assert_close(out, usual(x))
    assert all(torch.equal(a, b) for a, b in zip(other.buffers(), usual.buffers(), strict=True))


def test_gradients_of_norms_are_the_same_but_for_rounding():
    x, weight = torch.randn(4, 6, 9, requires_grad=True), torch.randn(6, 9, requires_grad=True)
    into = torch.randn(4, 6, 9)

    def gradients():
        return torch.autograd.grad(F.layer_norm(x, (6, 9), weight), (x, weight), into)

    with Reordered() as mode:
        found = gradients()
    assert mode.used
    torch.testing.assert_close(found, gradients())


def scanned(function, blocks):
    with Reordered(blocks) as mode:
        return function(), mode.used


@pytest.mark.parametrize("blocks", [PARTS, 1])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.cumsum(-1),
        lambda x: x.cumsum(0),
        lambda x: (1 + x / 100).cumprod(1),
        lambda x: x.permute(0, 3, 1, 2).cumsum(1).view(2, -1),
        lambda x: x.half().cumsum(1, dtype=torch.float32),
        lambda x: (x > 0).cumsum(1, dtype=torch.float32),
    ],
)
def test_another_order_gives_the_same_but_for_rounding(function, blocks):
    torch.manual_seed(0)
    x = torch.randn(2, 1500, 3, 4)
    found, used = scanned(lambda: function(x), blocks)
    expected = function(x)
    assert used
    assert (found.shape, found.dtype, found.stride()) == (expected.shape, expected.dtype, expected.stride())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_orders_differ_in_their_last_digits():
    x = torch.randn(4, 3000)
    results = [scanned(lambda: x.cumsum(1), blocks)[0] for blocks in (PARTS, 1)]
    assert not any(torch.equal(a, b) for a, b in zip(results, [*results[1:], x.cumsum(1)], strict=True))


@pytest.mark.parametrize(
    "x", [torch.empty(3, 0), torch.tensor(2.0), torch.arange(5), torch.randn(4).double()]
)
def test_what_has_no_other_order_stays(x):
    found, used = scanned(lambda: x.cumsum(-1), 32)
    assert torch.equal(found, x.cumsum(-1))
    assert not used

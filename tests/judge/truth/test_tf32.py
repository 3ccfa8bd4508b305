"""TF32 is emulated where PyTorch may use it."""

import contextlib

import pytest
import torch
from torch import nn

from kernelllm_judge.core.tf32 import CONVOLUTIONS
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.honest import Evaluation, InTf32, allowed_operations
from kernelllm_judge.truth.numerics import compare, expect


def test_factors_of_convolutions_are_rounded_to_ten_bits():
    x, weight, bias = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    x[0, 0, 0, 0], x[0, 0, 0, 1] = float("inf"), float("nan")
    with InTf32(CONVOLUTIONS) as mode:
        out = nn.functional.conv2d(x, weight, bias)
    assert mode.used

    def rounded(tensor):
        mantissa, exponent = torch.frexp(tensor.double())
        return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent).float()

    expected = nn.functional.conv2d(rounded(x), rounded(weight), bias)
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
    assert not torch.allclose(out[1], nn.functional.conv2d(x, weight, bias)[1], rtol=1e-6, atol=1e-6)


def test_gradients_of_convolutions_are_too():
    x, weight = torch.randn(2, 3, 8, 8, requires_grad=True), torch.randn(4, 3, 3, 3)
    incoming = torch.randn(2, 4, 6, 6)
    [exact] = torch.autograd.grad(nn.functional.conv2d(x, weight), x, incoming)
    out = nn.functional.conv2d(x, weight)
    with InTf32(CONVOLUTIONS) as mode:
        [rough] = torch.autograd.grad(out, x, incoming)
    assert mode.used
    assert 1e-6 < float((rough - exact).abs().max()) < 5e-2


convolve = nn.functional.conv2d


def expected_with_tf32(x, weight):
    exact = convolve(x.double(), weight.double())
    found = []
    for truncated in (False, True):
        with InTf32(CONVOLUTIONS, truncated=truncated):
            found.append(Evaluation([convolve(x, weight)]))
    return expect(None, [convolve(x, weight)], [exact], [], Policy(), evaluations=found)


@pytest.mark.parametrize("draw", [torch.randn, torch.rand])
def test_tf32_may_be_rounded_or_truncated_and_bfloat16_inside_is_found(draw):
    torch.manual_seed(0)
    x, weight = draw(4, 128, 24, 24), (torch.rand(48, 128, 3, 3) - 0.5) / 17
    expected = expected_with_tf32(x, weight)

    def passes(change):
        return compare(convolve(change(x), change(weight)), expected, 0, Policy(), None).passed

    assert passes(lambda tensor: tensor)
    assert passes(lambda tensor: (tensor.view(torch.int32) >> 13 << 13).view(torch.float32))  # truncated
    assert not passes(lambda tensor: tensor.bfloat16().float())


def test_a_large_sample_hides_no_errors_of_small_ones():
    torch.manual_seed(0)
    x, weight = torch.randn(8, 32, 12, 12), torch.randn(24, 32, 3, 3) / 17
    x[3] *= 1000
    expected = expected_with_tf32(x, weight)
    rough = convolve(x.bfloat16().float(), weight.bfloat16().float())
    rough[3] = convolve(x[3], weight)
    assert compare(convolve(x, weight), expected, 0, Policy(), None).passed
    assert not compare(rough, expected, 0, Policy(), None).passed


def test_one_convolution_may_truncate_and_the_next_round_where_most_outputs_are_zero():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 64, 1)
    biased, x = torch.linspace(-0.6, 0.1, 64).reshape(64, 1, 1), torch.rand(8, 3, 64, 64)

    @torch.no_grad()
    def run(first, second, convolve=convolve, of=lambda tensor: tensor):
        x_, (one, two) = of(x), ((of(layer.weight), of(layer.bias)) for layer in layers)
        with first:
            hidden = convolve(x_, *one).relu()
        with second:
            return (convolve(hidden, *two) + of(biased)).relu()

    def tf32(truncated):
        return InTf32(CONVOLUTIONS, truncated=truncated)

    nothing = contextlib.nullcontext()
    exact = run(nothing, nothing, of=torch.Tensor.double)
    rounded, truncated = (run(tf32(how), tf32(how)) for how in (False, True))
    assert float((exact == 0).double().mean()) > 0.5
    found = [Evaluation([rounded]), Evaluation([truncated])]
    expected = expect(None, [rounded], [exact], [], Policy(), evaluations=found)
    for mixed in (run(tf32(True), tf32(False)), run(tf32(False), tf32(True)), run(tf32(True), nothing)):
        assert compare(mixed, expected, 0, Policy(), None).passed
    rough = run(nothing, nothing, of=lambda tensor: tensor.bfloat16().float())
    assert not compare(rough, expected, 0, Policy(), None).passed


def test_samples_of_which_little_is_left_allow_no_errors_in_others():
    torch.manual_seed(0)
    x, weight = torch.randn(8, 32, 12, 12), torch.randn(24, 32, 3, 3) / 17
    kept = torch.ones(8, 1, 10, 10)
    kept[:5].view(5, -1)[:, 1:] = 0  # one pixel of five samples
    exact, found = convolve(x.double(), weight.double()) * kept, []
    for truncated in (False, True):
        with InTf32(CONVOLUTIONS, truncated=truncated):
            found.append([convolve(x, weight) * kept])
    original = [convolve(x, weight) * kept]
    expected = expect(None, original, [exact], [], Policy(), evaluations=map(Evaluation, found))
    assert all(compare(leaf, expected, 0, Policy(), None).passed for [leaf] in found)
    rough = convolve(x.bfloat16().float(), weight.bfloat16().float()) * kept
    for wrong in (rough, original[0] * 1.01):
        wrong[:5] = original[0][:5]
        assert not compare(wrong, expected, 0, Policy(), None).passed


def test_other_operations_and_dtypes_stay_as_they_are():
    x, weight = torch.randn(2, 8), torch.randn(8, 8)
    with InTf32(CONVOLUTIONS) as mode:
        assert torch.equal(x @ weight, x.clone() @ weight)
        nn.functional.conv1d(x.double()[None, :], torch.randn(1, 2, 3, dtype=torch.float64))
    assert not mode.used


def test_what_the_settings_allow():
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        assert torch.ops.aten.mm.default not in allowed_operations()
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert torch.ops.aten.mm.default in allowed_operations()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert (torch.ops.aten.convolution.default in allowed_operations()) == torch.backends.cudnn.allow_tf32

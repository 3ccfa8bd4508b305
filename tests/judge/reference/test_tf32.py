"""TF32 is emulated where PyTorch may use it."""

import torch
from torch import nn

from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference.numerics import compare, expect
from pytest_kernelllm.judge.reference.tf32 import CONVOLUTIONS, InTf32, allowed_operations
from pytest_kernelllm.judge.reference.truth import anywhere


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


def test_bfloat16_inside_is_found_where_tf32_is_allowed():
    torch.manual_seed(0)
    x, weight = torch.randn(4, 32, 24, 24), torch.randn(48, 32, 3, 3)
    convolve = nn.functional.conv2d
    exact = convolve(x.double(), weight.double())
    original, generous = convolve(x, weight), InTf32(CONVOLUTIONS)
    with generous:
        in_tf32 = convolve(x, weight)
    expected = expect(
        None, [original], [exact], [[anywhere(in_tf32, exact)]], Policy(), others=[([in_tf32], [exact])]
    )

    def passes(change):
        return compare(convolve(change(x), change(weight)), expected, 0, Policy(), None).passed

    assert passes(lambda tensor: tensor)
    assert passes(lambda tensor: (tensor.view(torch.int32) >> 13 << 13).view(torch.float32))  # truncated
    assert not passes(lambda tensor: tensor.bfloat16().float())


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

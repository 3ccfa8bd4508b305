"""The layers against what their formats mean, in float64. These tests hold before and after a kernel is adopted."""

import pytest
import torch
from quantised import FP8Linear, Int4Linear, Int8Linear, QuantizeFP8, QuantizeInt8
from quantised.linear import quantised_states


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_int8_linear() -> None:
    layer, x = Int8Linear(256, 128), torch.randn(3, 256)
    weight = layer.weight.double() * layer.scale.double()[:, None]
    torch.testing.assert_close(layer(x).double(), x.double() @ weight.T, rtol=1e-5, atol=1e-5)


def test_int4_linear_holds_what_it_was_given() -> None:
    torch.manual_seed(1)
    layer = Int4Linear(256, 128, 64)
    torch.manual_seed(1)
    weight = torch.randn(128, 256) / 16
    step = layer.scale.amax()
    assert (
        layer(torch.eye(256)).T - weight
    ).abs().max() <= step  # at the ends of a group, zero points round too


def test_fp8_linear() -> None:
    layer, (x, scale) = FP8Linear(256, 128), quantised_states(3)
    weight = layer.weight.double() * layer.scale.double()[:, None]
    expected = (x.double() * scale.double()) @ weight.T
    torch.testing.assert_close(layer(x, scale).double(), expected, rtol=2e-2, atol=2e-2)


def test_quantize_fp8_saturates_and_is_the_nearest() -> None:
    x = torch.tensor([[1e6, -1e6, 7.0, 7.05, 0.0]])
    assert QuantizeFP8(1 / 64)(x).float().tolist() == [[448.0, -448.0, 448.0, 448.0, 0.0]]


def test_quantize_int8() -> None:
    x = torch.randn(3, 256)
    codes, scale = QuantizeInt8()(x)
    assert codes.abs().amax(1).tolist() == [127] * 3
    assert ((codes * scale - x).abs() <= scale / 2 * 1.0001).all()

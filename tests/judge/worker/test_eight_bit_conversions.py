"""The interpreter's conversions to floats of 8 bits, against PyTorch's."""

import numpy as np
import pytest
import torch

from kernelllm_judge.worker import eight_bits


@pytest.mark.parametrize("kind", eight_bits.FORMATS, ids=str)
def test_conversions_round_as_pytorch_does(kind) -> None:
    dtype = eight_bits.FORMATS[kind]
    values = torch.arange(128, dtype=torch.uint8).view(dtype).float()
    values = values[values.isfinite()]
    torch.manual_seed(0)
    drawn = [torch.randn(10_000) * scale for scale in (1e-3, 1.0, 30.0)]
    halves = (values[1:] + values[:-1]) / 2
    numbers = torch.cat([*drawn, values, halves, -halves, torch.tensor([-0.0, torch.nan])])
    numbers = numbers.clamp(-values.max(), values.max())
    codes = torch.from_numpy(eight_bits.narrow(numbers.numpy(), kind))
    expected = numbers.to(dtype)
    assert torch.equal(codes.view(dtype).float().nan_to_num(1e9), expected.float().nan_to_num(1e9))
    assert torch.equal(torch.signbit(codes.view(dtype).float()), torch.signbit(expected.float()))


def test_what_is_too_large_becomes_the_largest_and_towards_zero_is_the_one_before() -> None:
    [kind] = [each for each, dtype in eight_bits.FORMATS.items() if dtype == torch.float8_e4m3fn]
    numbers = np.array([1e9, -np.inf, 31.9, -31.9], np.float32)

    def read(codes: np.ndarray) -> list[float]:
        return torch.from_numpy(codes).view(torch.float8_e4m3fn).float().tolist()

    assert read(eight_bits.narrow(numbers, kind)) == [448.0, -448.0, 32.0, -32.0]
    assert read(eight_bits.narrow(numbers, kind, towards_zero=True)) == [448.0, -448.0, 30.0, -30.0]

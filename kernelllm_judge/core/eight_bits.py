"""Floats of 8 bits, with which PyTorch stores and converts but hardly computes."""

from __future__ import annotations

import torch


def has_eight_bits(dtype: torch.dtype) -> bool:
    """Whether a dtype is a float of 8 bits, such as ``float8_e4m3fn``."""
    return dtype.is_floating_point and dtype.itemsize == 1


def computable(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the same values in a dtype that PyTorch computes with: float32 for 8 bits; other tensors as they are."""
    return tensor.float() if has_eight_bits(tensor.dtype) else tensor


def steps(tensor: torch.Tensor) -> torch.Tensor:
    """Returns how many values of its format lie between each element and 0, with its sign, as int16; NaN counts as beyond all.

    So both zeros are alike, and all NaN.
    """
    code = tensor.view(torch.uint8).to(torch.int16)
    magnitude = code & 0x7F
    signed = torch.where(code > 0x7F, -magnitude, magnitude)
    return torch.where(tensor.isnan(), 1 << 10, signed)


def narrowed(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns values in a dtype; in one of 8 bits, what is larger than its largest number becomes that.

    Otherwise it depended on the version of PyTorch and on the device.
    """
    if has_eight_bits(dtype):
        most = torch.finfo(dtype).max
        values = values.clamp(-most, most)
    return values.to(dtype)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Returns a floating dtype, or float32 where it is narrower."""
    return torch.float32 if dtype.itemsize < 4 else dtype

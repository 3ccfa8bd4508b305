"""Linear layers whose weights are stored in 8 or 4 bits, with scales."""

import torch
from torch import Tensor, nn

from kernelllm_runtime import triton_candidate

ROWS = {"rows": (1, 4096)}


def hidden_states(rows: int = 16) -> Tensor:
    return torch.randn(rows, 256)


@triton_candidate(inputs=hidden_states, init=(256, 128), dims=ROWS)
class Int8Linear(nn.Module):
    """Weights in int8 with a scale for each output: W8A16, as in weight-only quantisation.

    Input: ``(rows, width)``; output: ``(rows, out)``.
    """

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        weight = torch.randn(out, width) / width**0.5
        scale = weight.abs().amax(1) / 127
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight.to(x.dtype).T) * self.scale


@triton_candidate(inputs=hidden_states, init=(256, 128, 64), dims=ROWS)
class Int4Linear(nn.Module):
    """Weights in 4 bits, two to a byte, with a scale and a zero point for each group of inputs.

    The low half of a byte holds the even column, the high half the odd one. Input: ``(rows, width)``; output: ``(rows, out)``.
    """

    def __init__(self, width: int, out: int, group: int) -> None:
        super().__init__()
        self.group = group
        weight = (torch.randn(out, width) / width**0.5).unflatten(1, (-1, group))
        low, high = weight.aminmax(dim=2, keepdim=True)
        scale = (high - low) / 15
        zero = (-low / scale).round()
        codes = (weight / scale + zero).round().clamp(0, 15).to(torch.uint8).flatten(1)
        self.register_buffer("packed", codes[:, ::2] | codes[:, 1::2] << 4)
        self.register_buffer("scale", scale[:, :, 0])
        self.register_buffer("zero", zero[:, :, 0])

    def forward(self, x: Tensor) -> Tensor:
        codes = torch.stack((self.packed & 15, self.packed >> 4), 2).flatten(1)
        centred = codes.to(x.dtype).unflatten(1, (-1, self.group)) - self.zero[:, :, None]
        return x @ (centred * self.scale[:, :, None]).flatten(1).T


def quantised_states(rows: int = 16) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 256)
    scale = x.abs().amax(1, keepdim=True) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


@triton_candidate(inputs=quantised_states, init=(256, 128), dims=ROWS)
class FP8Linear(nn.Module):
    """A scaled product: inputs and weights in FP8 (e4m3), with a scale for each row of both.

    Inputs: ``(rows, width)`` and ``(rows, 1)``; output: ``(rows, out)`` in bfloat16.
    """

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        weight = torch.randn(out, width) / width**0.5
        scale = weight.abs().amax(1) / 448
        self.register_buffer("weight", (weight / scale[:, None]).to(torch.float8_e4m3fn))
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor, x_scale: Tensor) -> Tensor:
        product = x.to(x_scale.dtype) @ self.weight.to(x_scale.dtype).T
        return (product * x_scale * self.scale).to(torch.bfloat16)

"""Softmax over the places that a boolean mask leaves."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384, "width": 500}


def draw(n: int = 6, width: int = 60) -> tuple[Tensor, Tensor]:
    return torch.randn(n, width), torch.rand(n, width) < 0.3


@triton_candidate(inputs=draw, dims={"n": (1, 65536), "width": (1, 512)})
class Model(nn.Module):
    """Softmax of ``x`` where ``mask`` is false; rows without such places are NaN. Both ``(n, width)``."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(x.masked_fill(mask, float("-inf")), -1)

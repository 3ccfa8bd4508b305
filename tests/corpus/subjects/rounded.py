"""Rounding to whole numbers."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x`` rounded, halves to even, times a quarter."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.round(x) * 0.25

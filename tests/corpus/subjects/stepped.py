"""A step at a level."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x`` above the level, ``-1`` at it and below."""

    def __init__(self) -> None:
        super().__init__()
        self.level = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > self.level, x, -1.0)

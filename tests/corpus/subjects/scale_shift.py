"""Scale and shift by learned vectors; the width is no power of two."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}
WIDTH = 96


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, WIDTH)


@triton_candidate(inputs=rows, init=(WIDTH,), dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * weight + bias`` for ``x`` of shape ``(n, width)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias

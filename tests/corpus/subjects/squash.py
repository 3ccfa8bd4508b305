"""A target that needs gradients, of its input and of a weight."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}
WIDTH = 64


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, WIDTH)


@triton_candidate(inputs=rows, init=(WIDTH,), dims={"n": (1, 65536)}, backward=True)
class Model(nn.Module):
    """``x / (1 + |x|) * weight`` for ``x`` of shape ``(n, width)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x / (1 + x.abs()) * self.weight

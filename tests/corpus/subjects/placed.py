"""Inputs that are the same at every seed: a mask of ones, positions in order, and a number."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384}
WIDTH = 32


def draw(n: int = 6) -> tuple[Tensor, ...]:
    return torch.randn(n, WIDTH), torch.arange(WIDTH), torch.ones(n, WIDTH), torch.tensor(2.0)


@triton_candidate(inputs=draw, init=(WIDTH,), dims={"n": (1, 65536)})
class Model(nn.Module):
    """``(x + table[positions]) * keep * scale`` for ``x`` and ``keep`` of shape ``(n, width)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor, positions: Tensor, keep: Tensor, scale: Tensor) -> Tensor:
        return (x + self.table[positions]) * keep * scale

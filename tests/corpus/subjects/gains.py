"""Columns of very different scale."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def draw(n: int = 40) -> Tensor:
    return torch.randn(n, 6)


@triton_candidate(inputs=draw, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * gain`` for ``x`` of shape ``(n, 6)``; the gains reach from 1000 to 0.0001."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([1e3, 30.0, 1.0, 0.1, 1e-3, 1e-4]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain

"""Buffers that are updated: batch norm in train mode."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 512}
CHANNELS, LENGTH = 6, 40


def signals(n: int = 3) -> Tensor:
    return torch.randn(n, CHANNELS, LENGTH)


@triton_candidate(inputs=signals, init=(CHANNELS,), dims={"n": (1, 1024)}, training=True)
class Model(nn.Module):
    """``nn.BatchNorm1d`` over ``(n, channels, length)``: the batch's statistics, which move the running ones."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(channels, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)

"""Buffers: batch norm in eval mode."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 4096}
CHANNELS, LENGTH = 6, 40


def signals(n: int = 3) -> Tensor:
    return torch.randn(n, CHANNELS, LENGTH)


@triton_candidate(inputs=signals, init=(CHANNELS,), dims={"n": (1, 8192)})
class Model(nn.Module):
    """``(x - running_mean) / sqrt(running_var + eps) * weight + bias`` by channel of ``(n, channels, length)``."""

    def __init__(self, channels: int, eps: float = 1e-3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.1, self.eps
        )

"""Dropout in evaluation mode, with a share that cannot be half as large again."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384}


def draw(n: int = 6) -> Tensor:
    return torch.randn(n, 48)


@triton_candidate(inputs=draw, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``2 * dropout(x)`` for ``x`` of shape ``(n, 48)``."""

    def __init__(self, share: float = 0.8, factor: float = 2.0) -> None:
        super().__init__()
        self.share = share
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.share, self.training) * self.factor

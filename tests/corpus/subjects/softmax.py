"""Softmax over rows; both sizes are free."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384, "width": 1000}


def rows(n: int = 5, width: int = 100) -> Tensor:
    return torch.randn(n, width)


@triton_candidate(inputs=rows, dims={"n": (1, 65536), "width": (1, 1024)})
class Model(nn.Module):
    """Softmax over the last dimension of ``(n, width)``."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, -1)

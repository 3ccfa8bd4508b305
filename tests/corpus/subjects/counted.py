"""Sums of integers."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randint(-1000, 1000, (n, 16))


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """The sum of each row of int64 ``(n, 16)``."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1)

"""Rows with a factor each, in sizes that reach far beyond 2**31 elements."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 4096, "width": 1024}


def rows(n: int = 5, width: int = 70) -> tuple[Tensor, Tensor]:
    return torch.randn(n, width), torch.randn(n)


@triton_candidate(inputs=rows, dims={"n": (1, 1 << 20), "width": (1, 1 << 20)})
class Model(nn.Module):
    """``x * factors[:, None]`` for ``x`` of shape ``(n, width)``."""

    def forward(self, x: Tensor, factors: Tensor) -> Tensor:
        return x * factors[:, None]

"""Running sums along rows."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384, "width": 500}


def rows(n: int = 4, width: int = 90) -> Tensor:
    return torch.randn(n, width)


@triton_candidate(inputs=rows, dims={"n": (1, 65536), "width": (1, 512)})
class Model(nn.Module):
    """Cumulative sum over the last dimension of ``(n, width)``."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, -1)

"""Two outputs, one of integers: the largest value of each row and where it is."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536, "width": 100}


def rows(n: int = 6, width: int = 50) -> Tensor:
    return torch.randn(n, width)


@triton_candidate(inputs=rows, dims={"n": (1, 65536), "width": (1, 128)})
class Model(nn.Module):
    """``(values, indices)`` of each row of ``(n, width)``; the first of equal values counts."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = torch.max(x, -1)
        return values, indices

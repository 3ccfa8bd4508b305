"""Distances, which PyTorch computes by a product that turns infinities into NaN."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 4096}
WIDTH = 5


def points(n: int = 40) -> tuple[Tensor, Tensor]:
    return torch.randn(n, WIDTH), torch.randn(50, WIDTH)


@triton_candidate(inputs=points, dims={"n": (1, 8192)})
class Model(nn.Module):
    """The distance of each row of ``a`` from each row of ``b``."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.cdist(a, b)

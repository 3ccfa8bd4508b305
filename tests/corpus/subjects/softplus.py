"""Softplus on inputs drawn by ``torch.rand``: none is negative or above 1."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384, "width": 500}


def draw(n: int = 5, width: int = 100) -> Tensor:
    return torch.rand(n, width)


@triton_candidate(inputs=draw, dims={"n": (1, 65536), "width": (1, 512)})
class Model(nn.Module):
    """``log(1 + exp(x))`` for ``x`` of shape ``(n, width)``."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x)

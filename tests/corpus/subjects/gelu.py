"""GELU in bfloat16, of which each element depends on one element of 16 bits."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384, "width": 500}


def draw(n: int = 5, width: int = 100) -> Tensor:
    return torch.randn(n, width, dtype=torch.bfloat16)


@triton_candidate(inputs=draw, dims={"n": (1, 65536), "width": (1, 512)})
class Model(nn.Module):
    """``gelu(x)`` for ``x`` of shape ``(n, width)``, by the error function."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x)

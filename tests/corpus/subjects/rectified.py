"""ReLU on inputs drawn by ``torch.rand``: none is negative."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384, "width": 500}


def draw(n: int = 5, width: int = 100) -> Tensor:
    return torch.rand(n, width)


@triton_candidate(inputs=draw, dims={"n": (1, 65536), "width": (1, 512)})
class Model(nn.Module):
    """``relu(x)`` for ``x`` of shape ``(n, width)``."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)

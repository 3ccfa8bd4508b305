"""The maximum over the middle dimension, whose numbers lie in different rows."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 64, "width": 512}
DEPTH = 64


def draw(n: int = 3, width: int = 40) -> Tensor:
    return torch.randn(n, DEPTH, width)


@triton_candidate(inputs=draw, dims={"n": (1, 64), "width": (1, 512)})
class Model(nn.Module):
    """``x.amax(1)`` for ``x`` of shape ``(n, DEPTH, width)``."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amax(1)

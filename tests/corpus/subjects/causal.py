"""Softmax with an additive mask that is the same at every seed."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 256}
LENGTH = 8


def draw(n: int = 3) -> tuple[Tensor, Tensor]:
    later = torch.ones(LENGTH, LENGTH).triu(1) != 0
    return torch.randn(n, LENGTH, LENGTH), torch.zeros(LENGTH, LENGTH).masked_fill(later, -torch.inf)


@triton_candidate(inputs=draw, dims={"n": (1, 1024)})
class Model(nn.Module):
    """``softmax(scores + mask)`` for ``scores`` of shape ``(n, length, length)``."""

    def forward(self, scores: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(scores + mask, -1)

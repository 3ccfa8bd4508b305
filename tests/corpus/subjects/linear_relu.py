"""A linear layer and ReLU: a target with a GEMM."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 8192}
INNER, OUTER = 48, 64


def rows(n: int = 20) -> Tensor:
    return torch.randn(n, INNER)


@triton_candidate(inputs=rows, init=(INNER, OUTER), dims={"n": (1, 16384)})
class Model(nn.Module):
    """``relu(fc(x))`` for ``x`` of shape ``(n, inner)``."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.fc = nn.Linear(inner, outer)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.fc(x))

"""A polynomial whose coefficients are a list."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 1 << 22}


def values(n: int = 600) -> Tensor:
    return torch.randn(n)


@triton_candidate(inputs=values, dims={"n": (1, 1 << 22)})
class Model(nn.Module):
    """``x * x + 2 * x + 0.5``."""

    def __init__(self) -> None:
        super().__init__()
        self.coefficients = [1.0, 2.0, 0.5]

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = self.coefficients
        return a * x * x + b * x + c

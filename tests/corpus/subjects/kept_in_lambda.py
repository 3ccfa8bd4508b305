"""A lambda, one of two on a line."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self, double: bool = True) -> None:
        super().__init__()
        self.scaled = (lambda x: x + x) if double else (lambda x: x - x)

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(x)


def other() -> Model:
    return Model(double=False)


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

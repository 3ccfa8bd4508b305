"""A zero of which only the sign matters."""

import math

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x`` times 2 or -2, the sign of a zero."""

    def __init__(self, side: float = 0.0) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        return x * math.copysign(2.0, self.side)


def other() -> Model:
    return Model(-0.0)


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

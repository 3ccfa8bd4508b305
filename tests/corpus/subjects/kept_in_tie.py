"""Two names of one parameter."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * weight²``."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(64))
        self.second = self.first if tied else nn.Parameter(torch.full((64,), 3.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.first * self.second


def other() -> Model:
    return Model(tied=False).requires_grad_(False)


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

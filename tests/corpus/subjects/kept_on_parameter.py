"""A scale that is an attribute of a parameter."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 512}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 512)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64))
        self.weight.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight.scale


def other() -> Model:
    return Model(3.0)


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

"""A scale in a list that a closure shares with the caller."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


def scaling(scales: list[float]) -> Callable[[Tensor], Tensor]:
    def scaled(x: Tensor) -> Tensor:
        return x * scales[0]

    return scaled


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self) -> None:
        super().__init__()
        self._scales = [2.0]
        self.scaled = scaling(self._scales)

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(x)


def other() -> Model:
    model = Model()
    model._scales[0] = 3.0
    return model


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

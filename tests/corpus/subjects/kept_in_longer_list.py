"""A scale that is the sum of a short list."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self) -> None:
        super().__init__()
        self.taps = [0.5, 1.5]

    def forward(self, x: Tensor) -> Tensor:
        return x * sum(self.taps)


def other() -> Model:
    model = Model()
    model.taps.append(1.0)
    return model


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

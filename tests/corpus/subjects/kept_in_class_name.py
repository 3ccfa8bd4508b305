"""A scale that depends on the name of the class."""

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

    def forward(self, x: Tensor) -> Tensor:
        return x * (3.0 if type(self).__name__ == "Larger" else 2.0)


class Larger(Model):
    """A model of another name."""


def other() -> Model:
    return Larger()


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

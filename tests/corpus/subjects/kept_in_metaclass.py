"""A scale that belongs to the class of the class."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


class Scaled(type):
    """Classes with a scale."""

    scale = 2.0


class Base(nn.Module, metaclass=Scaled):
    """A module whose class has a scale."""


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(Base):
    """``x * 2``."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x * type(self).scale


def other() -> Model:
    Scaled.scale = 3.0
    return Model()


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

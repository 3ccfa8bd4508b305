"""A scale that is an enum's value."""

import enum

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


class Mode(enum.Enum):
    DOUBLE = 2.0
    TRIPLE = 3.0


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self) -> None:
        super().__init__()
        self._modes = {"now": Mode.DOUBLE}

    @property
    def mode(self) -> Mode:
        return self._modes["now"]

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mode.value


def other() -> Model:
    model = Model()
    model._modes["now"] = Mode.TRIPLE
    return model


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

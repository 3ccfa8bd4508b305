"""A scale that a dataclass takes from a global when it is built, while forward runs."""

import dataclasses

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


SCALES = {"now": 2.0}


@dataclasses.dataclass
class Options:
    """What forward needs."""

    scale: float = dataclasses.field(default_factory=lambda: SCALES["now"])


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x * Options().scale


def other() -> Model:
    SCALES["now"] = 3.0
    return Model()


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

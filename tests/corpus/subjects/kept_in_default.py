"""A default that was computed when the file was imported."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


SCALES = [2.0]


def scaled(x: Tensor, scale: float = SCALES[0]) -> Tensor:
    return x * scale


def made(scale: float) -> Callable[[Tensor], Tensor]:
    def scaled(x: Tensor, scale: float = scale) -> Tensor:
        return x * scale

    return scaled


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def forward(self, x: Tensor) -> Tensor:
        return scaled(x)


def other() -> Model:
    globals()["scaled"] = made(3.0)
    return Model()


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

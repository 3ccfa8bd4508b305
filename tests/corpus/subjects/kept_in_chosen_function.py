"""A function chosen when the file is imported."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


FAST = True


def doubled(x: Tensor) -> Tensor:
    return x * 2.0


def tripled(x: Tensor) -> Tensor:
    return x * 3.0


scaled = doubled if FAST else tripled


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def forward(self, x: Tensor) -> Tensor:
        return scaled(x)


def other() -> Model:
    globals()["scaled"] = tripled
    return Model()


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

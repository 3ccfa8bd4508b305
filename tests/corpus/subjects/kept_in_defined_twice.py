"""A function with two definitions, one of which the import chooses."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


FAST = True


def scaled(x: Tensor) -> Tensor:
    return x * 3.0


slow = scaled
if FAST:

    def scaled(x: Tensor) -> Tensor:
        return x * 2.0


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def forward(self, x: Tensor) -> Tensor:
        return scaled(x)


def other() -> Model:
    globals()["scaled"] = slow
    return Model()


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

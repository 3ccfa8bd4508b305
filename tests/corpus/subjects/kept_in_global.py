"""A constant of the file."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


SCALE = 2.0


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def forward(self, x: Tensor) -> Tensor:
        return x * SCALE


def other() -> Model:
    globals()["SCALE"] = 3.0
    return Model()

"""A scale in a dict."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.table = {"scale": scale}

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table["scale"]


def other() -> Model:
    return Model(3.0)

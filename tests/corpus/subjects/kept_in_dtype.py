"""A dtype that the input passes through."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self, through: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.through = through

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.through).float() * 2.0


def other() -> Model:
    return Model(torch.int32)


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

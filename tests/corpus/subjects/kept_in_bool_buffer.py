"""A choice in a bool buffer."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self, doubled: bool = True) -> None:
        super().__init__()
        self.register_buffer("doubled", torch.tensor(doubled))

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.doubled, x * 2.0, x * 3.0)


def other() -> Model:
    return Model(doubled=False)


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

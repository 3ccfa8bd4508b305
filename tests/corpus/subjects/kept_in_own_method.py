"""One of the module's own methods, chosen by the constructor."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self, double: bool = True) -> None:
        super().__init__()
        self.chosen = self.doubled if double else self.tripled

    def doubled(self, x: Tensor) -> Tensor:
        return x * 2.0

    def tripled(self, x: Tensor) -> Tensor:
        return x * 3.0

    def forward(self, x: Tensor) -> Tensor:
        return self.chosen(x)


def other() -> Model:
    return Model(double=False)


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

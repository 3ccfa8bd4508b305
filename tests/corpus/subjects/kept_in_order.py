"""A scale that is the first of two parameters, whose order depends on a flag."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self, turned: bool = False) -> None:
        super().__init__()
        for name in ("b", "a") if turned else ("a", "b"):
            self.register_parameter(name, nn.Parameter(torch.zeros(64)))

    def forward(self, x: Tensor) -> Tensor:
        return x * (2.0 + next(name == "b" for name, _ in self.named_parameters()))


def other() -> Model:
    return Model(True)


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

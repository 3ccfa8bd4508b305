"""A scale that is the first of a dict."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def __init__(self) -> None:
        super().__init__()
        self.table = {"a": 2.0, "b": 3.0}

    def forward(self, x: Tensor) -> Tensor:
        return x * next(iter(self.table.values()))


def other() -> Model:
    model = Model()
    model.table["a"] = model.table.pop("a")
    return model


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

"""A class chosen when the file is imported."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


class Double:
    scale = 2.0


class Triple:
    scale = 3.0


Config = Double


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * 2``."""

    def forward(self, x: Tensor) -> Tensor:
        return x * Config.scale


def other() -> Model:
    globals()["Config"] = Triple
    return Model()


def get_inputs() -> list[Tensor]:
    return [rows(**LARGE)]


def get_init_inputs() -> list[float]:
    return []

"""A part that is held by a lambda, too."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384}
WIDTH = 32


def draw(n: int = 6) -> Tensor:
    return torch.randn(n, WIDTH)


class Scale(nn.Module):
    """``x * weight``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Shift(nn.Module):
    """``x + bias``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


@triton_candidate(inputs=draw, init=(WIDTH,), dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * sigmoid(x * scale + shift)`` for ``x`` of shape ``(n, width)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"scale": Scale(width), "shift": Shift(width)})
        parts = self.parts
        self.gate = lambda x: torch.sigmoid(parts["shift"](parts["scale"](x)))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)

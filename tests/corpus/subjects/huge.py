"""Numbers whose squares overflow float64."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384}


def draw(n: int = 8) -> Tensor:
    return torch.randn(n, 40, dtype=torch.float64) * 1e200


@triton_candidate(inputs=draw, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x * factor`` for float64 ``x`` of shape ``(n, 40)``."""

    def __init__(self, factor: float = 1.7) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor

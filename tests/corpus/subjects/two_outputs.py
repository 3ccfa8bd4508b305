"""Two outputs, of which a caller may use one."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)}, backward=True)
class Model(nn.Module):
    """``x * |x|`` and ``x / (1 + |x|)``."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * x.abs(), x / (1 + x.abs())

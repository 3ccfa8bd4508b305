"""An elementwise function of one flat tensor, with a slope."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 1 << 22}


def values(n: int = 2500) -> Tensor:
    return torch.randn(n)


@triton_candidate(inputs=values, dims={"n": (1, 1 << 22)})
class Model(nn.Module):
    """``x`` where it is positive, ``slope * x`` elsewhere, for ``x`` of shape ``(n,)``."""

    def __init__(self, slope: float = 0.25) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.slope)

"""Clamping, to bounds that are infinite or NaN where there is none."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """``min(max(x, low), high) * scale``; a scale of NaN is none."""

    def __init__(self, high: float = math.inf) -> None:
        super().__init__()
        self.low, self.high, self.scale = -0.5, high, math.nan
        self.gain = np.float32(2.5)

    def forward(self, x: Tensor) -> Tensor:
        scale = 1.0 if math.isnan(self.scale) else self.scale
        return x.clamp(self.low, self.high) * scale * float(self.gain)

"""Layer norm with weight and bias, then GELU; the width is no power of two."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 1 << 18}
WIDTH = 80


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, WIDTH)


@triton_candidate(inputs=rows, init=(WIDTH,), dims={"n": (1, 1 << 18)})
class Model(nn.Module):
    """``gelu(layer_norm(x))`` over the last dimension of ``(n, width)``."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(F.layer_norm(x, (self.width,), self.weight, self.bias, self.eps))

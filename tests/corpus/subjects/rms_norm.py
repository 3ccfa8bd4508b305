"""RMS norm with a learned weight and an epsilon."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}
WIDTH = 128


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, WIDTH)


@triton_candidate(inputs=rows, init=(WIDTH,), dims={"n": (1, 65536)})
class Model(nn.Module):
    """``x / sqrt(mean(x²) + eps) * weight`` over the last dimension of ``(n, width)``."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight

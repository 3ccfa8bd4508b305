"""A target in bfloat16 whose gradients are added up in float32 and rounded once."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 4096}
WIDTH = 1024


def rows(n: int = 8) -> Tensor:
    return torch.randn(n, WIDTH)


@triton_candidate(inputs=rows, init=(WIDTH,), dims={"n": (1, 4096)}, dtypes=("bfloat16",), backward=True)
class Model(nn.Module):
    """``x * weight`` in float32, for ``x`` of shape ``(n, width)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() * self.weight.float()).to(x.dtype)

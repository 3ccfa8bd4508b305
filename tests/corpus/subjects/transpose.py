"""Data movement only: every value of the output stands in the input."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 4096}


def matrices(n: int = 4) -> Tensor:
    return torch.randn(n, 24, 40)


@triton_candidate(inputs=matrices, dims={"n": (1, 8192)})
class Model(nn.Module):
    """The last two dimensions of ``(n, 24, 40)`` changed places, contiguous."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(-1, -2).contiguous()

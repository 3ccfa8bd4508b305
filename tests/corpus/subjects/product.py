"""Nothing but a product, which a vendor library computes, of numbers that are never negative."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 512}


def draw(n: int = 24) -> tuple[Tensor, Tensor]:
    return torch.rand(n, n), torch.rand(n, n)


@triton_candidate(inputs=draw, dims={"n": (1, 1024)})
class Model(nn.Module):
    """The product of ``a`` and ``b``, both ``(n, n)``."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b

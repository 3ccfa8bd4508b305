"""A result whose zeros the given inputs bring along."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 512}


def draw(n: int = 24) -> tuple[Tensor, Tensor]:
    return torch.rand(n, n).tril(), torch.rand(n, n).tril()


@triton_candidate(inputs=draw, dims={"n": (1, 1024)})
class Model(nn.Module):
    """The lower triangle of the product of ``a`` and ``b``, both ``(n, n)``."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.tril(a @ b)

"""Arithmetic with 64-bit integers."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 1 << 20}


def draw(n: int = 700) -> Tensor:
    return torch.randint(0, 100_000, (n,))


@triton_candidate(inputs=draw, dims={"n": (1, 1 << 21)})
class Model(nn.Module):
    """``(ids * 31 + 7) % 1009`` for int64 ``ids`` of shape ``(n,)``."""

    def forward(self, ids: Tensor) -> Tensor:
        return (ids * 31 + 7) % 1009

"""A hash of each row, in 32 bits that overflow."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384}


def rows(n: int = 6) -> Tensor:
    return torch.randint(-(2**31), 2**31, (n, 64)).to(torch.int32)


@triton_candidate(inputs=rows, dims={"n": (1, 65536)})
class Model(nn.Module):
    """The sum of ``x ^ (x >> 15)`` times an odd number, for ``x`` of shape ``(n, 64)``, and its steps."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mixed = (x ^ (x >> 15)) * 0x2C1B3C6D
        return mixed.sum(-1, dtype=torch.int32), mixed.cumsum(-1, dtype=torch.int32)

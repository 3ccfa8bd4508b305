"""Rows of a table, with the table's gradient."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}
ROWS, WIDTH = 4000, 16


def draw(n: int = 10) -> Tensor:
    return torch.randint(0, ROWS, (n,))


@triton_candidate(inputs=draw, init=(ROWS, WIDTH), dims={"n": (1, 65536)}, backward=True)
class Model(nn.Module):
    """``table[ids]``, of shape ``(n, width)``, for int64 ``ids`` of shape ``(n,)``."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, width))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.table)

"""Rows of a table that is too long for every row to be drawn; one is padding and is not trained."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}
ROWS, WIDTH, PADDING = 3000, 8, 7


def ids(n: int = 24) -> Tensor:
    return torch.randint(0, ROWS, (n,))


@triton_candidate(inputs=ids, dims={"n": (1, 65536)}, backward=True)
class Model(nn.Module):
    """``2 * table[ids]``, of shape ``(n, width)``, for int64 ``ids`` of shape ``(n,)``."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH, padding_idx=PADDING)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids) * 2.0

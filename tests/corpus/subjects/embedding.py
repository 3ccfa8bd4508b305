"""Integer inputs: scaled rows of a table."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 65536}
ROWS, WIDTH = 40, 24


def ids(n: int = 10) -> Tensor:
    return torch.randint(0, ROWS, (n,))


@triton_candidate(inputs=ids, init=(ROWS, WIDTH), dims={"n": (1, 65536)})
class Model(nn.Module):
    """``table[ids] * scale``, of shape ``(n, width)``, for int64 ``ids`` of shape ``(n,)``."""

    def __init__(self, rows: int, width: int, scale: float = 2.5) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, width))
        self.scale = scale

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.table) * self.scale

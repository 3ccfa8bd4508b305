"""A result that is a small difference of large numbers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 4096, "width": 500}


def draw(n: int = 6, width: int = 100) -> tuple[Tensor, Tensor]:
    return torch.randn(n, width), torch.randn(n, width)


@triton_candidate(inputs=draw, dims={"n": (1, 8192), "width": (2, 512)})
class Model(nn.Module):
    """Mean Kullback-Leibler divergence of the distributions with logits ``p`` and ``q``, both ``(n, width)``."""

    def forward(self, p: Tensor, q: Tensor) -> Tensor:
        return F.kl_div(F.log_softmax(q, -1), F.softmax(p, -1), reduction="batchmean")

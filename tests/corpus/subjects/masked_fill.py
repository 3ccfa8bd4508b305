"""A boolean input: masked places get a fill value."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 16384, "width": 500}


def scores(n: int = 5, width: int = 150) -> tuple[Tensor, Tensor]:
    return torch.randn(n, width), torch.rand(n, width) < 0.3


@triton_candidate(inputs=scores, dims={"n": (1, 65536), "width": (1, 512)})
class Model(nn.Module):
    """``x`` where ``mask`` is false, ``fill`` where it is true; both of shape ``(n, width)``."""

    def __init__(self, fill: float = -7.5) -> None:
        super().__init__()
        self.fill = fill

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return x.masked_fill(mask, self.fill)

"""Three numbers of different size, always of as many elements."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE: dict[str, int] = {}


def draw() -> Tensor:
    return torch.randn(3000)


@triton_candidate(inputs=draw, dims={})
class Model(nn.Module):
    """Sums of fourth powers and of magnitudes, and the mean."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x.pow(4).sum(), x.abs().sum(), x.mean()])

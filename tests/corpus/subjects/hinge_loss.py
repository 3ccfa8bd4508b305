"""A loss: one number out of predictions and labels of ±1."""

import torch
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

LARGE = {"n": 1_000_000}


def batch(n: int = 1500) -> tuple[Tensor, Tensor]:
    return torch.randn(n), torch.randint(0, 2, (n,)).float() * 2 - 1


@triton_candidate(inputs=batch, dims={"n": (1, 1 << 20)})
class Model(nn.Module):
    """``mean(max(0, 1 - prediction * target))``, 0-d, for two tensors of shape ``(n,)``."""

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        return torch.mean(torch.clamp(1 - prediction * target, min=0))

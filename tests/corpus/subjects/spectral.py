"""A weight that is computed from another one and from buffers."""

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from pytest_kernelllm import triton_candidate

LARGE = {"n": 4096}
IN, OUT = 16, 12


def rows(n: int = 24) -> Tensor:
    return torch.randn(n, IN)


@triton_candidate(inputs=rows, init=(IN, OUT), dims={"n": (1, 4096)})
class Model(nn.Module):
    """A ReLU after a linear layer whose weight is divided by its largest singular value."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.linear = spectral_norm(nn.Linear(fan_in, fan_out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))

"""A weight that is computed from another one and from buffers, which every call updates."""

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from pytest_kernelllm import triton_candidate

LARGE = {"n": 4096}
IN, OUT = 16, 12


def rows(n: int = 24) -> Tensor:
    return torch.randn(n, IN)


@triton_candidate(inputs=rows, init=(IN, OUT), dims={"n": (1, 4096)}, training=True)
class Model(nn.Module):
    """As ``spectral``, in train mode: each call improves the two vectors by one power iteration."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.linear = spectral_norm(nn.Linear(fan_in, fan_out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))

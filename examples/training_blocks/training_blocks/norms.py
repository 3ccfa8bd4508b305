"""Normalisation layers with learned weights."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernelllm_runtime import triton_candidate

SIZES = {"batch": (1, 16), "seq": (1, 4096)}


def hidden_states(batch: int = 4, seq: int = 2048) -> Tensor:
    return torch.randn(batch, seq, 4096)


@triton_candidate(
    inputs=hidden_states, init=(4096,), dtypes=("bfloat16",), dims=SIZES, backward=True, training=True
)
class RMSNorm(nn.Module):
    """Scale each vector to a root mean square of one, computed in float32, then by a learned weight.

    Input and output: ``(batch, seq, hidden)``.
    """

    def __init__(self, hidden: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * (wide * scale).to(x.dtype)


@triton_candidate(
    inputs=hidden_states, init=(4096,), dtypes=("bfloat16",), dims=SIZES, backward=True, training=True
)
class LayerNorm(nn.Module):
    """Layer normalisation with a learned weight and bias. Input and output: ``(batch, seq, hidden)``."""

    def __init__(self, hidden: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

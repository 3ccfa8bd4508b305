"""Normalisation layers. Statistics are computed in float32 whatever the input's dtype."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernelllm_runtime import triton_candidate

SIZES = {"batch": (1, 32), "seq": (1, 4096)}


def prompt(batch: int = 8, seq: int = 2048) -> Tensor:
    return torch.randn(batch, seq, 4096)


@triton_candidate(inputs=prompt, init=(4096,), dtypes=("float32", "bfloat16"), dims=SIZES)
class RMSNorm(nn.Module):
    """Scale each vector to a root mean square of one, then by a learned weight.

    Input and output: ``(batch, seq, hidden)``.
    """

    def __init__(self, hidden: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight


def prefill(batch: int = 8, seq: int = 2048) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, seq, 2048), torch.randn(batch, seq, 2048)


def decode(batch: int = 64, seq: int = 1) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, seq, 2048), torch.randn(batch, seq, 2048)


@triton_candidate(
    inputs={"prefill": prefill, "decode": decode},
    init={"hidden": 2048},
    dtypes=("float32", "bfloat16"),
    dims={"batch": (1, 64), "seq": (1, 4096)},
)
class ResidualRMSNorm(nn.Module):
    """Add a block's output to the residual stream and normalise the sum for the next block.

    Inputs: ``x`` and ``residual``, both ``(batch, seq, hidden)``.
    Outputs: the normalised sum and the sum itself (the new residual), both ``(batch, seq, hidden)``.
    """

    def __init__(self, hidden: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        residual = residual + x
        wide = residual.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight, residual


def features(batch: int = 8, seq: int = 2048) -> Tensor:
    return torch.randn(batch, seq, 1024)


@triton_candidate(inputs=features, init=(1024,), dtypes=("float32", "bfloat16"), dims=SIZES)
class LayerNormGELU(nn.Module):
    """Layer normalisation followed by the exact (erf) GELU.

    Input and output: ``(batch, seq, hidden)``.
    """

    def __init__(self, hidden: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps))

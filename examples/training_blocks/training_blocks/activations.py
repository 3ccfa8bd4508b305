"""Gated activations of feed-forward blocks."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernelllm_runtime import triton_candidate

SIZES = {"batch": (1, 16), "seq": (1, 4096), "width": (1, 16384)}


def projections(batch: int = 4, seq: int = 2048, width: int = 8192) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, seq, width), torch.randn(batch, seq, width)


@triton_candidate(inputs=projections, dtypes=("bfloat16",), dims=SIZES, backward=True, training=True)
class SwiGLU(nn.Module):
    """``silu(gate) * up``. Inputs and output: ``(batch, seq, width)``."""

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up


@triton_candidate(inputs=projections, dtypes=("bfloat16",), dims=SIZES, backward=True, training=True)
class GEGLU(nn.Module):
    """``gelu(gate) * up`` with the tanh approximation. Inputs and output: ``(batch, seq, width)``."""

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.gelu(gate, approximate="tanh") * up

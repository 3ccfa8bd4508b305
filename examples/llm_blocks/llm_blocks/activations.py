"""Activations of feed-forward blocks."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernelllm_runtime import triton_candidate


def projections(batch: int = 8, seq: int = 1024, width: int = 8192) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, seq, width), torch.randn(batch, seq, width)


@triton_candidate(
    inputs=projections,
    dtypes=("float32", "bfloat16"),
    dims={"batch": (1, 16), "seq": (1, 4096), "width": (1, 16384)},
)
class SwiGLU(nn.Module):
    """The gated activation between a block's projections: ``silu(gate) * up``.

    Inputs ``gate`` and ``up``, and the output: ``(batch, seq, width)``.
    """

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up

"""Blocks whose time goes into matrix products."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernelllm_runtime import triton_candidate

SIZES = {"batch": (1, 32), "seq": (1, 4096)}


def hidden_states(batch: int = 8, seq: int = 1024) -> Tensor:
    return torch.randn(batch, seq, 1024)


@triton_candidate(inputs=hidden_states, init=(1024, 2816), dtypes=("float32", "bfloat16"), dims=SIZES)
class GatedMLP(nn.Module):
    """A feed-forward block with a SwiGLU gate. Its matrix products stay with the vendor's library.

    Input and output: ``(batch, seq, hidden)``; between them the block is ``width`` wide.
    """

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, width, bias=False)
        self.up = nn.Linear(hidden, width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


@triton_candidate(inputs=hidden_states, init=(1024, 2048), dims=SIZES)
class Projection(nn.Module):
    """A linear layer and nothing else: one matrix product, in which there is nothing to win.

    Marked to show what an honest "no kernel" looks like.
    Input: ``(batch, seq, hidden)``; output: ``(batch, seq, out)``.
    """

    def __init__(self, hidden: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)

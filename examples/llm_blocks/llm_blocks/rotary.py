"""Rotary position embedding."""

import torch
from torch import Tensor, nn

from kernelllm_runtime import triton_candidate


def rotary_tables(seq: int, head_dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Cosines and sines for positions ``0 … seq - 1``, each ``(seq, head_dim)``, float32."""
    frequencies = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    angles = torch.arange(seq).unsqueeze(-1) * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate_half(x: Tensor) -> Tensor:
    """``(a, b)`` to ``(-b, a)``, where ``a`` and ``b`` are the halves of the last dimension."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def attention_heads(batch: int = 8, seq: int = 2048) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k = torch.randn(batch, 32, seq, 64), torch.randn(batch, 8, seq, 64)
    return q, k, *rotary_tables(seq, 64)


@triton_candidate(
    inputs=attention_heads, dtypes=("float32", "bfloat16"), dims={"batch": (1, 32), "seq": (1, 8192)}
)
class RotaryEmbedding(nn.Module):
    """Turn queries and keys by their position.

    Inputs: ``q`` of ``(batch, heads, seq, head_dim)``, ``k`` of ``(batch, kv_heads, seq, head_dim)``,
    ``cos`` and ``sin`` of ``(seq, head_dim)``.
    Outputs: turned ``q`` and ``k``, shapes kept.
    """

    def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin

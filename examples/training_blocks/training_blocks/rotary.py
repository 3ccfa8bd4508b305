"""Rotary position embedding."""

import torch
from torch import Tensor, nn

from kernelllm_runtime import triton_candidate


def attention_heads(batch: int = 4, seq: int = 2048) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 32, seq, 128), torch.randn(batch, 8, seq, 128)


def rotate_half(x: Tensor) -> Tensor:
    """``(a, b)`` to ``(-b, a)``, where ``a`` and ``b`` are the halves of the last dimension."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


@triton_candidate(
    inputs=attention_heads,
    init=(128,),
    dtypes=("bfloat16",),
    dims={"batch": (1, 16), "seq": (1, 4096)},
    backward=True,
    training=True,
)
class RotaryEmbedding(nn.Module):
    """Turn queries and keys by their position; cosines and sines are buffers, which need no gradient.

    Inputs: ``q`` of ``(batch, heads, seq, head_dim)`` and ``k`` of ``(batch, kv_heads, seq, head_dim)``. Outputs: both turned.
    """

    def __init__(self, head_dim: int, positions: int = 4096, base: float = 10000.0) -> None:
        super().__init__()
        frequencies = base ** (-torch.arange(0, head_dim, 2) / head_dim)
        angles = torch.arange(positions).unsqueeze(-1) * torch.cat((frequencies, frequencies))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.cos[: q.shape[2]], self.sin[: q.shape[2]]
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin

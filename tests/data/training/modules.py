"""Targets that need gradients, small enough to be judged in Triton's interpreter."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_kernelllm import triton_candidate

SIZES = {"batch": (1, 4), "seq": (1, 16)}
DTYPES = ("float32", "bfloat16")


def rows(batch: int = 2, seq: int = 6) -> Tensor:
    return torch.randn(batch, seq, 48)


def pairs(batch: int = 2, seq: int = 6) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, seq, 48), torch.randn(batch, seq, 48)


def heads(batch: int = 2, seq: int = 6) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 4, seq, 16), torch.randn(batch, 2, seq, 16)


def predictions(tokens: int = 12, vocab: int = 40) -> tuple[Tensor, Tensor]:
    return torch.randn(tokens, vocab), torch.randint(vocab, (tokens,))


@triton_candidate(inputs=rows, init=(48,), dtypes=DTYPES, dims=SIZES, backward=True, training=True)
class RMSNorm(nn.Module):
    def __init__(self, hidden: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight


@triton_candidate(inputs=rows, init=(48,), dtypes=("bfloat16",), dims=SIZES, backward=True)
class LayerNorm(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


@triton_candidate(
    inputs=lambda batch=3: torch.randn(batch, 8, 5, 6),
    init=(2, 8),
    dtypes=DTYPES,
    dims={"batch": (1, 64)},
    backward=True,
)
class GroupNorm(nn.GroupNorm):
    pass


@triton_candidate(inputs=pairs, dtypes=DTYPES, dims=SIZES, backward=True, training=True)
class SwiGLU(nn.Module):
    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up


@triton_candidate(inputs=pairs, dims=SIZES, backward=True, training=True)
class GEGLU(nn.Module):
    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.gelu(gate, approximate="tanh") * up


@triton_candidate(inputs=heads, dims=SIZES, backward=True)
class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        angles = torch.arange(16).unsqueeze(-1) * 100.0 ** (-torch.arange(0, 16, 2) / 16)
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.cos[: q.shape[2]], self.sin[: q.shape[2]]
        return q * cos + half(q) * sin, k * cos + half(k) * sin


def half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


@triton_candidate(
    inputs=predictions,
    dtypes=DTYPES,
    dims={"tokens": (1, 32), "vocab": (2, 96)},
    backward=True,
    training=True,
)
class CrossEntropy(nn.Module):
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels)


@triton_candidate(inputs=rows, dims=SIZES, backward=True)
class Projected(nn.Module):
    """A matrix product, whose gradients are matrix products of the vendor's library."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(48, 24)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.fc(x))


@triton_candidate(inputs=pairs, dims=SIZES, backward=True)
class Several(nn.Module):
    """Outputs in a dict, one of them without gradient."""

    def forward(self, a: Tensor, b: Tensor) -> dict[str, Tensor]:
        product = a * b
        return {"product": product, "best": product.argmax(-1), "squashed": product.sigmoid()}


class Rounding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@triton_candidate(inputs=rows, dims=SIZES, backward=True)
class StraightThrough(nn.Module):
    """An autograd function of the user's own, a frozen weight and a part without gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((48,), 3.0))
        self.frozen = nn.Parameter(torch.ones(48), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            largest = x.abs().amax(-1, keepdim=True) + 1
        return Rounding.apply(x * self.scale) * self.frozen / largest


@triton_candidate(inputs=rows, init=(48,), dims=SIZES, backward=True, training=True)
class BatchNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2))


def images(batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, 8, 8)


@triton_candidate(inputs=images, dims={"batch": (1, 4)}, backward=True)
class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x))


@triton_candidate(inputs=heads, dims=SIZES, backward=True)
class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)


@triton_candidate(inputs=lambda: torch.randn(4, 8), backward=True)
class Tied(nn.Module):
    """One parameter under two names; its gradient is the sum of both."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.second = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * self.first) * self.second


@triton_candidate(inputs=lambda: torch.randint(10, (3, 4)), backward=True)
class Embedded(nn.Module):
    """Rows that are looked up; gradients of one that is looked up twice are added."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.tanh(self.table(ids))


@triton_candidate(inputs=rows, dims=SIZES, backward=True)
class Passing(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x


@triton_candidate(inputs=rows, dims=SIZES, backward=True)
class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).exp()


@triton_candidate(inputs=rows, dims=SIZES, backward=True)
class Detached(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach().exp()


@triton_candidate(inputs=rows, dims=SIZES, backward=True, training=True)
class Dropping(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x.exp(), 0.1, self.training)

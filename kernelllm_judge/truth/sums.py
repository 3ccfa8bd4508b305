"""Sums, and what is computed from them, with float32 sums in another order than PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten

FEWEST = 64
"""Parts of a sum, which are added one after the other, as in a kernel's loop…"""

MOST = 512
"""…and the most of them…"""

LONG = 4096
"""…where each has so many elements: kernels add up long rows block by block, or by atomics."""


Term = Callable[[torch.Tensor], torch.Tensor]
"""What is added up of each number. It gets a part of them at a time, because there may be no memory for a copy of all."""


def _itself(part: torch.Tensor) -> torch.Tensor:
    return part


def summed(x: torch.Tensor, dims: Sequence[int], keepdim: bool = False, term: Term = _itself) -> torch.Tensor:
    """Returns the sum over dimensions, all of them if ``dims`` is empty; float32."""
    if not x.dim():
        return term(x)
    dims = [d % x.dim() for d in (dims or range(x.dim()))]
    widest = max(dims, key=lambda d: x.shape[d])
    count = math.prod(x.shape[d] for d in dims)
    parts: list[torch.Tensor] = [
        aten.sum.dim_IntList(term(part), dims, keepdim)
        for part in x.chunk(min(max(FEWEST, count // LONG), MOST), widest)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def averaged(
    x: torch.Tensor, dims: Sequence[int], keepdim: bool = False, term: Term = _itself
) -> torch.Tensor:
    """Returns the mean over dimensions, as ``summed``."""
    total = summed(x, dims, keepdim, term)
    return total * (total.numel() / max(x.numel(), 1))


def moments(x: torch.Tensor, dims: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the mean and the mean squared distance from it, with the dimensions kept."""
    mean = averaged(x, dims, True)
    return mean, averaged(x, dims, True, lambda part: (part - mean).square_())


def variance(
    x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> torch.Tensor:
    """Stands in for ``aten.var``."""
    dims = dim or range(x.dim())
    count = math.prod(x.shape[d] for d in dims)
    mean = averaged(x, dims, True)
    total = summed(x, dims, keepdim, lambda part: (part - mean).square_())
    return total / max(count - (1 if correction is None else correction), 0)


def deviation(x: torch.Tensor, dim: Any = None, **settings: Any) -> torch.Tensor:
    """Stands in for ``aten.std``."""
    return variance(x, dim, **settings).sqrt()


def variance_and_mean(
    x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[torch.Tensor, ...]:
    """Stands in for ``aten.var_mean``."""
    spread = variance(x, dim, correction=correction, keepdim=keepdim)
    return spread, averaged(x, dim or [], keepdim)


def layer_norm(
    func: Any, x: torch.Tensor, shape: Any, weight: Any, bias: Any, eps: float
) -> tuple[torch.Tensor, ...]:
    """Stands in for ``func``, which computes a layer norm. Like all norms here, lays its output out as ``func`` does."""
    out, *_ = func(x, shape, weight, bias, eps)
    mean, squared = moments(x, range(-len(shape), 0))
    scale = (squared + eps).rsqrt()
    return out.copy_(_scaled((x - mean).mul_(scale), weight, bias)), mean, scale


def group_norm(
    func: Any,
    x: torch.Tensor,
    weight: Any,
    bias: Any,
    n: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """Stands in for ``func``, which computes a group norm."""
    out, *_ = func(x, weight, bias, n, channels, size, groups, eps)
    rows = x.reshape(n, groups, -1)
    mean, squared = moments(rows, [-1])
    scale = (squared + eps).rsqrt()
    shape = [1, channels, *[1] * (x.dim() - 2)]
    weight, bias = (None if t is None else t.reshape(shape) for t in (weight, bias))
    out.copy_(_scaled((rows - mean).mul_(scale).reshape(x.shape), weight, bias))
    return out, mean.reshape(n, groups), scale.reshape(n, groups)


def batch_norm(
    func: Any,
    x: torch.Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    step: float,
    eps: float,
) -> tuple[torch.Tensor, ...] | None:
    """Stands in for ``func``, which computes a batch norm; None where nothing is summed."""
    if not training:
        return None
    out, *further = func(x, weight, bias, mean, var, training, step, eps)  # updates the running statistics
    center, squared = moments(x, [0, *range(2, x.dim())])
    weight, bias = (None if t is None else t.reshape(center.shape) for t in (weight, bias))
    return out.copy_(_scaled((x - center).mul_((squared + eps).rsqrt()), weight, bias)), *further


def rms_norm(func: Any, x: torch.Tensor, shape: Any, weight: Any, eps: Any) -> tuple[torch.Tensor, ...]:
    """Stands in for ``func``, which computes an RMS norm."""
    out, *_ = func(x, shape, weight, eps)
    smallest = torch.finfo(x.dtype).eps if eps is None else eps
    scale = (averaged(x, range(-len(shape), 0), True, torch.square) + smallest).rsqrt()
    return out.copy_(_scaled(x * scale, weight, None)), scale


def vector_norm(
    x: torch.Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> torch.Tensor | None:
    """Stands in for ``aten.linalg_vector_norm``; None for other orders than 1 and 2."""
    if order not in (1, 2) or dtype not in (None, torch.float32) or not x.dim():
        return None
    dims = [dim] if isinstance(dim, int) else dim or []
    if order == 1:
        return summed(x, dims, keepdim, torch.abs)
    return summed(x, dims, keepdim, torch.square).sqrt()


def _scaled(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    """Scales numbers in place."""
    if weight is not None:
        x.mul_(weight)
    return x if bias is None else x.add_(bias)

"""Computes float32 results as another honest implementation might: sums in another order, ``exp`` by way of ``exp2``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from kernelllm_judge.core.dispatch_mode import DispatchMode

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


class Reordered(DispatchMode):
    """Replaces float32 operations that kernels compute in other ways than libraries; ``used`` says whether there were any.

    ``terms`` is how many products are added up in one element at most, by a matrix product or a convolution.

    Library calls for products and convolutions choose an order of summation by size and by what is fused with them,
    and Triton's ``exp`` multiplies by log2(e) first, which loses digits of large arguments.
    """

    def __init__(self) -> None:
        """Prepares; ``used`` says later whether it replaced anything."""
        super().__init__()
        self.used = False
        self.terms = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation."""
        kwargs = kwargs or {}
        other = _OTHERS.get(func)
        if other is not None and all(
            a.dtype == torch.float32 and a.layout == torch.strided and a.numel()
            for a in (*args, *kwargs.values())
            if isinstance(a, torch.Tensor)
        ):
            self.terms = max(self.terms, _terms(func, args))
            result = other(*args, **kwargs)
            if result is not None:
                self.used = True
                return result
        return func(*args, **kwargs)


def _terms(func: Any, args: Any) -> int:
    """Returns how many products are added up in each element of a matrix product or a convolution; 0 for others."""
    if func is aten.convolution.default:
        x, weight, groups = args[0], args[1], args[8]
        return int(x.shape[1] // groups * math.prod(weight.shape[2:]))
    return int(args[_PRODUCTS[func]].shape[-1]) if func in _PRODUCTS else 0


_PRODUCTS: Mapping[Any, int] = MappingProxyType(
    {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
)
"""Matrix products, with the position of their first factor."""


PARTS = 16
"""Parts of a product's sums, which are added one after the other, as in a kernel's loop."""


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    count = min(PARTS, a.shape[-1])
    products = (x @ y for x, y in zip(a.chunk(count, -1), b.chunk(count, -2), strict=True))
    total = next(products)
    for product in products:
        total = total + product
    return total


def _added(
    bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    total: torch.Tensor = alpha * _product(a, b)
    return total + beta * bias if beta else total


def _convolution(x: torch.Tensor, weight: torch.Tensor, bias: Any, *settings: Any) -> torch.Tensor | None:
    *_, transposed, _, groups = settings
    channels = x.shape[1]
    if groups != 1 or channels < 2:
        return None
    parts: list[torch.Tensor] = [
        aten.convolution(x[:, some], weight[some] if transposed else weight[:, some], None, *settings)
        for some in (slice(channels // 2), slice(channels // 2, channels))
    ]
    total = parts[0] + parts[1]
    return total if bias is None else total + bias.reshape(-1, *[1] * (total.dim() - 2))


def _exp(x: torch.Tensor) -> torch.Tensor:
    return torch.exp2(x * math.log2(math.e))


def _sum(
    x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> torch.Tensor | None:
    return summed(x, dim or [], keepdim) if x.dim() and dtype in (None, torch.float32) else None


def _mean(
    x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> torch.Tensor | None:
    return averaged(x, dim or [], keepdim) if x.dim() and dtype in (None, torch.float32) else None


def _softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor | None:
    if x.dim() == 0:
        return None
    x = x.contiguous()  # as the outputs of softmax are
    shifted = _exp(x - x.amax(dim, keepdim=True))
    return shifted / summed(shifted, [dim], True)


def _log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor | None:
    if x.dim() == 0:
        return None
    x = x.contiguous()
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - summed(_exp(shifted), [dim], True).log()


_NORMS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        aten.native_layer_norm.default: layer_norm,
        aten.native_group_norm.default: group_norm,
        aten._fused_rms_norm.default: rms_norm,
        aten.native_batch_norm.default: batch_norm,
        aten.cudnn_batch_norm.default: batch_norm,
    }
)

_OTHERS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        aten.mm.default: _product,
        aten.bmm.default: _product,
        aten.addmm.default: _added,
        aten.baddbmm.default: _added,
        aten.convolution.default: _convolution,
        aten.exp.default: _exp,
        aten.sum.default: _sum,
        aten.sum.dim_IntList: _sum,
        aten.mean.default: _mean,
        aten.mean.dim: _mean,
        aten._softmax.default: _softmax,
        aten._log_softmax.default: _log_softmax,
        aten.var.correction: variance,
        aten.std.correction: deviation,
        aten.var_mean.correction: variance_and_mean,
        aten.linalg_vector_norm.default: vector_norm,
        **{norm: partial(other, norm) for norm, other in _NORMS.items()},
    }
)

"""Computes float32 results as another honest implementation might: sums in another order, ``exp`` by way of ``exp2``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_judge.truth import sums

aten = torch.ops.aten


class Reordered(DispatchMode):
    """Replaces float32 operations that kernels compute in other ways than libraries; ``used`` says whether there were any.

    ``terms`` is how many products are added up in one element at most, by a matrix product or a convolution.

    Library calls for products and convolutions choose an order of summation by size and by what is fused with them,
    and Triton's ``exp`` multiplies by log2(e) first, which loses digits of large arguments.
    """

    def __init__(self) -> None:
        """Has replaced nothing yet."""
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
    return sums.summed(x, dim or [], keepdim) if x.dim() and dtype in (None, torch.float32) else None


def _mean(
    x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> torch.Tensor | None:
    return sums.averaged(x, dim or [], keepdim) if x.dim() and dtype in (None, torch.float32) else None


def _softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor | None:
    if x.dim() == 0:
        return None
    x = x.contiguous()  # as the outputs of softmax are
    shifted = _exp(x - x.amax(dim, keepdim=True))
    return shifted / sums.summed(shifted, [dim], True)


def _log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor | None:
    if x.dim() == 0:
        return None
    x = x.contiguous()
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - sums.summed(_exp(shifted), [dim], True).log()


_NORMS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        aten.native_layer_norm.default: sums.layer_norm,
        aten.native_group_norm.default: sums.group_norm,
        aten._fused_rms_norm.default: sums.rms_norm,
        aten.native_batch_norm.default: sums.batch_norm,
        aten.cudnn_batch_norm.default: sums.batch_norm,
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
        aten.var.correction: sums.variance,
        aten.std.correction: sums.deviation,
        aten.var_mean.correction: sums.variance_and_mean,
        aten.linalg_vector_norm.default: sums.vector_norm,
        **{norm: partial(other, norm) for norm, other in _NORMS.items()},
    }
)

"""Evaluates originals as other honest implementations might: in other orders of summation, ``exp`` by way of ``exp2``, and in
TF32 where PyTorch's settings allow it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch._decomp import decomposition_table

from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_judge.core.tf32 import Factors, allowed

aten = torch.ops.aten

PARTS = 32
"""Parts of a sum, which are added one after the other, as in a kernel's loop. A running sum is cut into as many times as many."""

DROPPED = 13
"""Last bits of a float32 number that TF32 lacks."""


@dataclass(frozen=True)
class Evaluation:
    """Leaves as an honest implementation might give them."""

    leaves: Sequence[Any]
    exact: Sequence[Any] | None = None
    """The same in float64, where inputs differ from the probe's."""
    terms: int = 0
    """Products that it adds up in one element at most, where that is known."""


def shape_and_kind(leaf: Any) -> tuple[Any, ...]:
    """Returns the shape and dtype of an output leaf; all floating dtypes count as one."""
    floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return (leaf.shape, floating or leaf.dtype) if isinstance(leaf, torch.Tensor) else (type(leaf),)


class Reordered(DispatchMode):
    """Computes float32 operations as kernels may; ``used`` says whether there were any.

    Sums, products and convolutions are added up in parts, and norms and softmax are made of these; libraries choose an order
    by size and by what is fused. Triton's ``exp`` multiplies by log2(e) first, which loses digits of large arguments.
    """

    def __init__(self, parts: int = PARTS) -> None:
        """``parts`` is how many a sum has; with one, running sums are added up as a tree."""
        super().__init__()
        self.used = False
        self.terms = 0
        """How many products are added up in one element at most, by a matrix product or a convolution."""
        self._parts = parts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation."""
        kwargs = kwargs or {}
        if func in _SCANS:
            return self._scanned(func, *args, **kwargs)
        if (func in _OTHERS or func in _DECOMPOSED) and all(
            a.dtype == torch.float32 and a.layout == torch.strided and a.numel()
            for a in (*args, *kwargs.values())
            if isinstance(a, torch.Tensor)
        ):
            self.terms = max(self.terms, _terms(func, args))
            if func in _DECOMPOSED:
                return self._decomposed(func, args, kwargs)
            result = _OTHERS[func](self._parts, *args, **kwargs)
            if result is not None:
                self.used = True
                return result
        return func(*args, **kwargs)

    def _decomposed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Returns what PyTorch's own decomposition gives, with its sums in parts; laid out as ``func`` does."""
        # A batch norm updates its statistics: once.
        copies = [a.clone() if isinstance(a, torch.Tensor) and a.dim() == 1 else a for a in args]
        usual = func(*args, **kwargs)
        with self:
            found = decomposition_table[func](*copies, **kwargs)
        for there, here in zip(
            *((x if isinstance(x, tuple | list) else (x,)) for x in (usual, found)), strict=True
        ):
            if isinstance(there, torch.Tensor) and there.shape == here.shape and there.dtype == here.dtype:
                there.copy_(here)
        return usual

    def _scanned(self, func: Any, x: torch.Tensor, dim: int, *, dtype: Any = None) -> torch.Tensor:
        """Scans numbers in blocks, each as a tree (Kogge and Stone, 1973), and adds what came before to each block."""
        if (dtype or x.dtype) != torch.float32 or not x.dim() or not x.numel():
            result: torch.Tensor = func(x, dim, dtype=dtype)
            return result
        self.used = True
        scanned: list[torch.Tensor] = []
        for block in x.float().chunk(self._parts**2, dim):
            here = _in_a_tree(block, dim, _SCANS[func])
            if scanned:
                here = _SCANS[func](scanned[-1].narrow(dim, -1, 1), here)
            scanned.append(here)
        return torch.cat(scanned, dim).contiguous()  # as PyTorch's own results are


class InTf32(DispatchMode):
    """Cuts the float32 factors of some operations to TF32's bits; ``used`` says whether there were any."""

    terms = 0

    def __init__(self, operations: Factors, *, truncated: bool = False) -> None:
        """Has cut nothing yet.

        Args:
            operations: as ``allowed_operations`` returns them.
            truncated: leave the last bits out, as a tensor core does with what it is given, which makes every factor
                smaller; else round to the nearest number.
        """
        super().__init__()
        self.used = False
        self._added = 0 if truncated else 1 << DROPPED - 1
        self._operations = operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation."""
        given = list(args)
        for position in self._operations.get(func, ()):
            if isinstance(given[position], torch.Tensor) and given[position].dtype == torch.float32:
                given[position] = _cut(given[position], self._added)
                self.used = True
        return func(*given, **(kwargs or {}))


Mode = Reordered | InTf32


def modes(*, tf32: bool) -> list[Mode]:
    """Returns the contexts in which an original computes as another implementation may, where settings allow it in ``tf32``, too."""
    orders: list[Mode] = [Reordered(), Reordered(1)]
    return orders + [InTf32(allowed_operations(), truncated=how) for how in (False, True)] * tf32


def allowed_operations() -> Factors:
    """Returns the operations that may use TF32 on a GPU under PyTorch's present settings."""
    return {operation: where for factors in allowed().values() for operation, where in factors.items()}


def _cut(tensor: torch.Tensor, added: int) -> torch.Tensor:
    """Returns numbers whose last bits are zero, after something is added to these; NaN and infinities as they are."""
    bits = tensor.contiguous().view(torch.int32) + added
    return torch.where(tensor.isfinite(), (bits >> DROPPED << DROPPED).view(torch.float32), tensor)


def _in_a_tree(
    x: torch.Tensor, dim: int, combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    distance, length = 1, x.shape[dim]
    while distance < length:
        before, rest = x.narrow(dim, 0, length - distance), x.narrow(dim, distance, length - distance)
        x = torch.cat([x.narrow(dim, 0, distance), combine(before, rest)], dim)
        distance *= 2
    return x


def _terms(func: Any, args: Any) -> int:
    """Returns how many products are added up in each element of a matrix product or a convolution; 0 for others."""
    if func is aten.convolution.default:
        x, weight, groups = args[0], args[1], args[8]
        return int(x.shape[1] // groups * math.prod(weight.shape[2:]))
    return int(args[_PRODUCTS[func]].shape[-1]) if func in _PRODUCTS else 0


def _added(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    first, *others = parts
    return sum(others, first)


def _product(count: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    count = min(count, a.shape[-1])
    return _added(x @ y for x, y in zip(a.chunk(count, -1), b.chunk(count, -2), strict=True))


def _product_and_bias(
    count: int, bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    total: torch.Tensor = alpha * _product(count, a, b)
    return total + beta * bias if beta else total


def _convolution(
    count: int, x: torch.Tensor, weight: torch.Tensor, bias: Any, *settings: Any
) -> torch.Tensor | None:
    *_, transposed, _, groups = settings
    channels = x.shape[1]
    if groups != 1 or channels < 2 or count == 1:
        return None
    total = _added(
        aten.convolution(x[:, some], weight[some] if transposed else weight[:, some], None, *settings)
        for some in (slice(channels // 2), slice(channels // 2, channels))
    )
    return total if bias is None else total + bias.reshape(-1, *[1] * (total.dim() - 2))


def _exp(count: int, x: torch.Tensor) -> torch.Tensor:
    return torch.exp2(x * math.log2(math.e))


def _sum(
    count: int, x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> torch.Tensor | None:
    if not x.dim() or dtype not in (None, torch.float32):
        return None
    dims = [d % x.dim() for d in (dim or range(x.dim()))]
    widest = max(dims, key=lambda d: x.shape[d])
    return _added(aten.sum.dim_IntList(part, dims, keepdim) for part in x.chunk(count, widest))


def _mean(count: int, x: torch.Tensor, *args: Any, **settings: Any) -> torch.Tensor | None:
    total = _sum(count, x, *args, **settings)
    return None if total is None else total * (total.numel() / x.numel())


def _variance_and_mean(
    count: int, x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor] | None:
    mean = _mean(count, x, dim, True)
    squares = None if mean is None else _sum(count, (x - mean).square_(), dim, keepdim)
    if mean is None or squares is None:
        return None
    numbers = x.numel() // mean.numel() - (1 if correction is None else correction)
    return squares / max(numbers, 0), mean.reshape(squares.shape)


def _biased_or_not(
    count: int, x: torch.Tensor, dim: Any, unbiased: bool = True, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor] | None:
    return _variance_and_mean(count, x, dim, correction=int(unbiased), keepdim=keepdim)


def _variance(count: int, x: torch.Tensor, dim: Any = None, **settings: Any) -> torch.Tensor | None:
    found = _variance_and_mean(count, x, dim, **settings)
    return found and found[0]


def _deviation(count: int, x: torch.Tensor, dim: Any = None, **settings: Any) -> torch.Tensor | None:
    found = _variance_and_mean(count, x, dim, **settings)
    return found and found[0].sqrt()


_SCANS: Mapping[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = MappingProxyType(
    {aten.cumsum.default: torch.add, aten.cumprod.default: torch.mul}
)
"""Running sums and products, and what combines two of their terms."""

_PRODUCTS: Mapping[Any, int] = MappingProxyType(
    {aten.mm.default: 0, aten.bmm.default: 0, aten.addmm.default: 1, aten.baddbmm.default: 1}
)
"""Matrix products, with the position of their first factor."""

_OTHERS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        aten.mm.default: _product,
        aten.bmm.default: _product,
        aten.addmm.default: _product_and_bias,
        aten.baddbmm.default: _product_and_bias,
        aten.convolution.default: _convolution,
        aten.exp.default: _exp,
        aten.sum.default: _sum,
        aten.sum.dim_IntList: _sum,
        aten.mean.default: _mean,
        aten.mean.dim: _mean,
        aten.var.correction: _variance,
        aten.std.correction: _deviation,
        aten.var_mean.correction: _variance_and_mean,
        aten.var_mean.dim: _biased_or_not,
    }
)

_DECOMPOSED = frozenset(
    {
        aten.native_layer_norm.default,
        aten.native_layer_norm_backward.default,
        aten.native_group_norm.default,
        aten.native_group_norm_backward.default,
        aten._fused_rms_norm.default,
        aten._fused_rms_norm_backward.default,
        aten.native_batch_norm.default,
        aten.native_batch_norm_backward.default,
        aten.cudnn_batch_norm.default,
        aten._softmax.default,
        aten._softmax_backward_data.default,
        aten._log_softmax.default,
        aten._log_softmax_backward_data.default,
        aten.linalg_vector_norm.default,
    }
)
"""What is made of sums."""

"""How other honest implementations may compute a result: in another order, and in TF32 where PyTorch may use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_judge.core.tf32 import Factors, allowed
from kernelllm_judge.truth.reordered import Reordered
from kernelllm_judge.truth.rows import ROW, distance, only_finite, rms

DROPPED = 13
"""Last bits of a float32 number that TF32 lacks."""

RARE = 12.0
"""Standard deviations that no error exceeds."""


def allowed_operations() -> Factors:
    """Returns the operations that may use TF32 on a GPU under PyTorch's present settings."""
    return {operation: where for factors in allowed().values() for operation, where in factors.items()}


class InTf32(DispatchMode):
    """Cuts the float32 factors of some operations to TF32's bits; ``used`` says whether there were any."""

    def __init__(self, operations: Factors, *, truncated: bool = False) -> None:
        """Has cut nothing yet.

        Args:
            operations: as ``allowed_operations`` returns them.
            truncated: leave the last bits out, as a tensor core does with what it is given, which makes every factor
                smaller; else round to the nearest number.
        """
        super().__init__()
        self.used = False
        self.truncated = truncated
        self._operations = operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation."""
        given = list(args)
        for position in self._operations.get(func, ()):
            if isinstance(given[position], torch.Tensor) and given[position].dtype == torch.float32:
                given[position] = _cut(given[position], 0 if self.truncated else 1 << DROPPED - 1)
                self.used = True
        return func(*given, **(kwargs or {}))


def farthest(
    rounded: Sequence[torch.Tensor], truncated: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Returns results as far off as TF32 may make any element.

    Truncated factors make an element smaller by a share of it. Besides, it errs by what is added up, not by the sum.

    Args:
        rounded: results of ``InTf32``.
        truncated: the same, truncated.
        exact: float64 results; integers may have any type.
    """
    return [_farthest(*each) for each in zip(rounded, truncated, exact, strict=True)]


def _farthest(rounded: torch.Tensor, truncated: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    if not rounded.is_floating_point():
        return rounded
    if not rounded.numel():
        return exact
    spread = RARE * _deviations(rounded.double(), exact)
    error = truncated.double() - exact
    return exact + error + torch.where(error < 0, -spread, spread)


def _deviations(rounded: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Returns the root mean square of the errors of each index of the first dimension, or of all where they are few.

    It is relative to what is there, so that large samples do not hide errors in small ones, and at least the median
    share of it: all elements of a sample may have one error, which is small by chance now and then. Elements without any
    error do not count: what `relu` sets to zero says nothing of the others.
    """
    alone = exact.dim() > 1 and exact[0].numel() >= ROW
    shape = (len(exact), -1) if alone else (1, -1)
    errors = distance(rounded, exact).reshape(shape)
    erring = errors.count_nonzero(1).reshape(-1, 1).clamp_min(1) / max(errors.shape[1], 1)
    off = rms(errors, 1) / erring.sqrt()
    there = torch.where(errors > 0, only_finite(exact).reshape(shape), 0.0)
    size = (rms(there, 1) / erring.sqrt()).clamp_min(1e-300)
    by_sample = torch.maximum(off, size * (off / size).median())
    return by_sample.reshape([-1, *[1] * exact.dim()][: exact.dim()])


def _cut(tensor: torch.Tensor, added: int) -> torch.Tensor:
    """Returns numbers whose last bits are zero, after something is added to these; NaN and infinities as they are."""
    bits = tensor.contiguous().view(torch.int32) + added
    return torch.where(tensor.isfinite(), (bits >> DROPPED << DROPPED).view(torch.float32), tensor)


aten = torch.ops.aten

SCANS: Mapping[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = MappingProxyType(
    {aten.cumsum.default: torch.add, aten.cumprod.default: torch.mul}
)
"""The operations, and what combines two of their terms."""

BLOCKS = (1024, 32, 1)
"""Into how many blocks at most a scan is cut. Up to 1,024 numbers are added one after the other then."""


class Scanned(DispatchMode):
    """Scans float32 numbers in blocks, each as a tree (Kogge and Stone, 1973), and adds what came before to each block."""

    def __init__(self, blocks: int) -> None:
        """``blocks``: how many there are at most."""
        super().__init__()
        self.used = False
        """Whether there was anything to scan."""
        self._blocks = blocks

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation."""
        dtype = (kwargs or {}).get("dtype") or args[0].dtype if func in SCANS else None
        if dtype != torch.float32 or not args[0].dim() or not args[0].numel():
            return func(*args, **(kwargs or {}))
        self.used = True
        x, dim = args[0].float(), args[1]
        scanned: list[torch.Tensor] = []
        for block in x.chunk(self._blocks, dim):
            here = _in_a_tree(block, dim, SCANS[func])
            if scanned:
                here = SCANS[func](scanned[-1].narrow(dim, -1, 1), here)
            scanned.append(here)
        return torch.cat(scanned, dim).contiguous()  # as PyTorch's own results are


def _in_a_tree(
    x: torch.Tensor, dim: int, combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    distance, length = 1, x.shape[dim]
    while distance < length:
        before, rest = x.narrow(dim, 0, length - distance), x.narrow(dim, distance, length - distance)
        x = torch.cat([x.narrow(dim, 0, distance), combine(before, rest)], dim)
        distance *= 2
    return x


Mode = Reordered | Scanned | InTf32
Tensors = list[torch.Tensor]


def modes(*, tf32: bool) -> list[Mode]:
    """Returns the contexts in which an original computes as another implementation may, where settings allow it in ``tf32``, too."""
    orders: list[Mode] = [Reordered(), *map(Scanned, BLOCKS)]
    if not tf32:
        return orders
    return [*orders, *(InTf32(allowed_operations(), truncated=how) for how in (False, True))]


@dataclass
class Otherwise:
    """What other implementations gave, as ``numerics.expect`` takes it."""

    others: list[tuple[Tensors, Tensors]] = field(default_factory=list)
    nearby: list[Tensors] = field(default_factory=list)
    terms: int = 0


def collect(found: Iterable[tuple[Mode, Tensors]], exact: Tensors) -> Otherwise:
    """Collects results.

    Args:
        found: the modes that changed anything, in the order of ``modes``, with the leaves that they gave.
        exact: the same leaves in float64.
    """
    collected = Otherwise()
    rounded: Tensors | None = None
    for mode, leaves in found:
        if isinstance(mode, InTf32) and mode.truncated:
            if rounded is not None:  # else the original fails with rounded factors
                collected.nearby.append(farthest(rounded, leaves, exact))
            continue
        collected.others.append((leaves, exact))
        if isinstance(mode, InTf32):
            rounded = leaves
        elif isinstance(mode, Reordered):
            collected.terms = mode.terms
    return collected

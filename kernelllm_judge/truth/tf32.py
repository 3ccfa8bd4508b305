"""Emulates TF32: where PyTorch may use it, a library's choice of algorithm decides whether a result has 10 or 23 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_judge.core.tf32 import Factors, allowed
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

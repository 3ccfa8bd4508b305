"""Measures outputs row by row, in chunks of bounded size.

Few values are read in between: each read waits for the GPU, which several processes share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from kernelllm_judge.core.eight_bits import at_least_float32
from kernelllm_judge.policy import Policy

CHUNK = 1 << 24
"""Elements that are compared at once where no policy says how many."""

ALIKE = 0.999
"""Share of a row's largest magnitude from which on elements are as large, see ``row_scale``."""

ROW = 32
"""Fewest elements of a row, whose errors are taken together; shorter last dimensions are merged with those before them."""


def group_rms(
    truth: torch.Tensor | None,
    value: torch.Tensor,
    dim: int,
    peak: float | torch.Tensor,
    policy: Policy,
    *,
    finite: bool = False,
) -> torch.Tensor:
    """Returns the root mean square in each group of elements along ``dim`` of ``(rows, last dimension)``, relative to ``peak``.

    It is that of the differences from ``truth``, or of the elements if that is None. ``finite`` says that all are known to be.
    """
    matrix = value.reshape(-1, value.shape[-1])
    wide = None if truth is None else truth.reshape(matrix.shape)
    norms = []
    for start, stop in chunks(matrix, policy):
        part = matrix[start:stop].double()
        off = distance(part, 0.0 if wide is None else wide[start:stop], finite=finite)
        norms.append(torch.linalg.vector_norm(off.div_(peak), dim=dim))
    whole: torch.Tensor = torch.cat(norms) if dim else torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return whole / math.sqrt(matrix.shape[dim])


def largest(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the largest magnitude of a finite element, or 0."""
    return tensor.abs().nan_to_num_(0.0, 0.0, 0.0).amax()


def rms(values: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns root mean squares along ``dim``, which is kept; squares do not overflow."""
    least = torch.finfo(values.dtype).tiny
    peak: torch.Tensor = torch.linalg.vector_norm(values, math.inf, dim, keepdim=True).clamp_min(least)
    norm: torch.Tensor = torch.linalg.vector_norm(values / peak, dim=dim, keepdim=True)
    return peak * norm / math.sqrt(values.shape[dim])


def row_scale(rows: torch.Tensor) -> torch.Tensor:
    """Returns the root mean square of each row, in which elements as large as the largest count as at most 1.

    So a fill value such as -1e9 does not hide the other elements. Where all others are tails of a
    saturated function, they are compared on a scale of 1, because they were computed from numbers about 1.
    """
    size = rows.abs()
    rest = torch.where(size < ALIKE * size.amax(1, keepdim=True), size, 0.0)
    return torch.minimum(rms(size, 1), rms(rest, 1).clamp_min(1.0))


def distance(value: torch.Tensor, truth: torch.Tensor | float, *, finite: bool = False) -> torch.Tensor:
    """Returns the absolute difference where both are finite; 0 elsewhere. ``finite`` says that all are known to be."""
    off = (value - truth).abs_()
    return off if finite else off.nan_to_num_(0.0, 0.0, 0.0)


def all_finite(tensor: torch.Tensor) -> bool:
    """Whether all elements are finite, and their sum.

    It is not if one of them is not, and is faster than testing each.
    """
    return bool(finite_sum(tensor))


def finite_sum(tensor: torch.Tensor) -> torch.Tensor:
    """Returns whether the sum of a tensor's elements is finite."""
    return tensor.sum(dtype=at_least_float32(tensor.dtype)).isfinite()


def unit_of(truth: torch.Tensor, row: torch.Tensor, dtype: torch.dtype, finite: bool) -> torch.Tensor:
    """Returns what errors are relative to: an element's magnitude plus its row's, or a tiny number."""
    size = truth.abs()
    if not finite:
        size = size.nan_to_num_(0.0, 0.0, 0.0)
    return size.add_(row).clamp_min_(least_unit(dtype))


def least_unit(dtype: torch.dtype) -> float:
    """Returns what errors are relative to at least."""
    tiny = torch.finfo(dtype).tiny
    # GPUs and fast exponentials flush subnormal float32 to zero. float16's subnormals are ordinary numbers.
    return tiny if dtype == torch.float16 else tiny * 2.0**26


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor as ``(rows, width)``, with at least ``ROW`` elements a row; one element where it has fewer altogether,
    such as several losses."""
    if tensor.numel() < ROW:
        return tensor.reshape(-1, 1)
    width, dims = 1, list(tensor.shape)
    while dims and width < ROW:
        width *= dims.pop()
    return tensor.reshape(math.prod(dims), width)


def chunks(matrix: torch.Tensor, policy: Policy) -> Iterator[tuple[int, int]]:
    """Yields ranges of a matrix's rows of bounded size, so that temporary tensors stay small."""
    rows, width = matrix.shape
    step = max(1, policy.chunk_elements // max(width, 1))
    for start in range(0, rows if width else 0, step):
        yield start, min(start + step, rows)


@dataclass(frozen=True)
class Errors:
    """How far one evaluation of a leaf is off."""

    worst: torch.Tensor
    """Largest error of each row, relative to ``|exact| + scale``, ``(rows, 1)``, float64."""
    rows: torch.Tensor
    """Root mean square of each row's errors, which are relative to the same, ``(rows, 1)``."""
    groups: tuple[torch.Tensor, ...]
    """Root mean squares of absolute errors, relative to the leaf's largest magnitude: of each column, of each short row."""


@dataclass(frozen=True)
class Ruler:
    """Measures the errors of one leaf."""

    truth: torch.Tensor
    """The exact output, float64."""
    dtype: torch.dtype
    scale: torch.Tensor
    """Magnitude of each row of it, ``(rows, 1)``, float64; see ``rows.row_scale``."""
    finite: bool
    """Whether all elements of original and exact output are finite."""
    policy: Policy

    @cached_property
    def peak(self) -> float:
        """The exact output's largest magnitude."""
        return float(largest(self.truth)) if self.truth.numel() else 0.0

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """Along which dimensions of ``(rows, last dimension)`` elements are taken together."""
        return together_dims(self.truth) if self.peak else ()

    @cached_property
    def sizes(self) -> tuple[torch.Tensor, ...]:
        """The root mean square of each group of exact elements."""
        return tuple(
            group_rms(None, self.truth, dim, self.peak, self.policy, finite=self.finite) for dim in self.dims
        )

    def errors(
        self, value: torch.Tensor, exact: torch.Tensor | None = None, into: torch.Tensor | None = None
    ) -> Errors:
        """Measures an evaluation.

        Args:
            exact: what it gives in float64; None: the truth.
            into: gets each element's error, where that is larger.
        """
        exact = self.truth if exact is None else exact
        most = torch.finfo(self.dtype).max
        worst, spread = torch.zeros_like(self.scale), torch.zeros_like(self.scale)
        for start, stop in chunks(as_rows(exact), self.policy):
            t, e, v = (as_rows(x)[start:stop] for x in (self.truth, exact, value))
            v = v.double()
            unit = unit_of(t, self.scale[start:stop], self.dtype, self.finite)
            if not self.finite:
                e = in_range(e, v, most)
            off = distance(v, e).div_(unit)
            worst[start:stop] = off.amax(1, keepdim=True)
            spread[start:stop] = rms(off, 1)
            if into is not None:
                # By chance a single element may not change; then its row's typical change counts.
                typical = torch.maximum(off, spread[start:stop]) * (1 + 1e-6)  # float32 rounds
                torch.maximum(into[start:stop], typical, out=into[start:stop])
        return Errors(worst, spread, self.groups(value, exact))

    def groups(self, value: torch.Tensor, exact: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        """Returns the root mean square of the errors of each group."""
        exact = self.truth if exact is None else exact
        return tuple(group_rms(exact, value, dim, self.peak, self.policy) for dim in self.dims)


def ruler_of(original: torch.Tensor, truth: torch.Tensor, policy: Policy) -> Ruler:
    """Returns what measures a leaf. Corrects ``truth`` where float64's range changes the meaning."""
    rows, _ = as_rows(original).shape
    most = torch.finfo(original.dtype).max
    finite = not rows or bool(finite_sum(original) & (torch.linalg.vector_norm(truth, math.inf) <= most))
    scale = truth.new_zeros(rows, 1)
    for start, stop in chunks(as_rows(truth), policy):
        t = as_rows(truth)[start:stop]
        if not finite:  # e.g. a mask filled with the dtype's lowest value
            t.copy_(in_range(t, as_rows(original)[start:stop].double(), most))
        scale[start:stop] = row_scale(t if finite else torch.where(t.abs() <= most, t, 0.0))
    return Ruler(truth, original.dtype, scale, finite, policy)


def in_range(exact: torch.Tensor, value: torch.Tensor, most: float) -> torch.Tensor:
    """Returns float64 values; in their place the dtype's own where only those are in its range."""
    return torch.where(value.isfinite() & ~(exact.abs() <= most), value, exact)


def together_dims(output: torch.Tensor) -> tuple[int, ...]:
    """Returns along which dimensions of ``(rows, last dimension)`` an output's elements are taken together."""
    width = output.shape[-1] if output.dim() else 1
    columns = (0,) if width > 1 and output.numel() > width else ()
    return columns + ((1,) if 1 < width < ROW else ())

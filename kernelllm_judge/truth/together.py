"""How far the elements of each column, or of each short row, may be off together, and whether they are.

A group of small numbers may not hide behind large ones beside it, and errors of several elements together are hardly ever
small by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth import fused
from kernelllm_judge.truth.rows import ROW, chunks, distance, group_rms, group_sizes, largest, least_unit

LEAST = 8
"""Fewest elements of a column that are judged together; half as many of a row."""

LEAST_COLUMNS = 8
"""Fewest columns of about one size whose errors others may have as well."""

MOST_ROWS = 1024
"""Most rows of an output in which a column may have the usual error: of more, a few hardly decide."""

LEAST_ROWS = 10
"""Fewest rows that tell what errors a column usually has."""

QUARTILES = 4.0
"""Most that the usual error of a column may be, in lower quartiles of its errors over what is usual in their rows; of normally
distributed ones it is 3.1."""

CHANCE = 1e-4
"""Smallest probability at which a column's error still counts as small by chance."""

MEDIANS = 4.0
"""Most that the error of columns about as large may be, in medians of their errors."""


@dataclass(frozen=True)
class Together:
    """How far the elements of each column, or of each short row, may be off together.

    Numbers are root mean squares, relative to ``peak``; float64.
    """

    dim: int
    """Dimension of the output, as a matrix ``(rows, last dimension)``, that is taken together."""
    size: torch.Tensor
    """Of each group of the exact output, one-dimensional."""
    allowed: torch.Tensor
    """Of each group's errors."""
    peak: float
    """The exact output's largest magnitude."""


def derive_together(
    original: torch.Tensor,
    truth: torch.Tensor,
    nearby: list[torch.Tensor],
    others: Sequence[tuple[torch.Tensor, torch.Tensor]],
    floor: float,
    scale: torch.Tensor,
    policy: Policy,
    finite: bool,
) -> tuple[Together, ...]:
    """Derives how far columns, and rows shorter than ``ROW``, may be off together. ``scale`` is that of ``bounds.ErrorBounds``."""
    if not truth.numel():
        return ()
    peak = float(largest(truth))
    found = []
    for dim in together_dims(truth) if peak else ():
        matrix, value = (x.reshape(-1, x.shape[-1]) for x in (truth, original))
        if not dim and finite and fused.columns_fit(matrix, value):
            size, own, spread = fused.column_rms(value, matrix, peak)
        else:
            size = group_sizes(truth, dim, peak, policy, finite=finite)
            own = group_rms(truth, original, dim, peak, policy, finite=finite)
            first = matrix.narrow(dim, 0, 1).expand_as(matrix)
            spread = group_rms(matrix, first, dim, peak, policy, finite=finite)
        for leaf, exactly in others:
            own = torch.maximum(own, group_rms(exactly, leaf, dim, peak, policy))
        # Elements that are all equal have one error, which is small by chance now and then.
        equal = (spread <= floor * size) & (own > 0)
        own = torch.where(equal, torch.maximum(own, own.median()), own)
        factor = torch.where(own > policy.noise * size, policy.noise_factor, policy.own_error_factor)
        allowed = torch.maximum(floor * size, factor * own)
        # So are those of a few large rows; then the errors of other rows and of other columns tell what is usual.
        if not dim and len(matrix) <= MOST_ROWS:
            usual, count = _of_rows_and_columns(matrix, value, peak, policy, finite)
            count = torch.where(equal, 1.0, count)
            alike = _of_others(size, own, torch.finfo(original.dtype).eps, policy)
            usual = torch.where(equal, 0.0, torch.minimum(usual, own * (CHANCE / len(size)) ** (-1 / count)))
            usual = torch.maximum(usual, torch.minimum(alike, own * CHANCE ** (-1 / count)))
            allowed = torch.maximum(allowed, policy.own_error_factor * usual)
        for other in nearby:
            allowed = torch.maximum(allowed, group_rms(truth, other, dim, peak, policy))
        least = least_unit(original.dtype) / peak
        unresolved = _unresolved(size * peak, scale) / peak
        allowed = torch.where(size > 0, allowed, torch.maximum(allowed, unresolved)).clamp_min(least)
        found.append(Together(dim, size, 2 * allowed, peak))
    return tuple(found)


def _of_others(size: torch.Tensor, errors: torch.Tensor, eps: float, policy: Policy) -> torch.Tensor:
    """Returns the error that columns about as large as each have; 0 for exact columns and for noise.

    Errors are compared relative to their column's size. Within each power of two the largest error counts, as far as it is more
    than one rounding of the output, but at most ``MEDIANS`` times the median one, which a few bad columns do not change.

    Args:
        size: of each column, at most about 1, one-dimensional.
        errors: of each column, from 0 on.
        eps: of the output's dtype.
    """
    lowest, highest, apart = -256, 1, 2  # powers of two; errors of what is smaller do not count
    fit = (errors > 0) & (errors <= policy.noise * size)
    relative = torch.where(fit, errors / size, 0.0)
    beyond = (relative.square() - (eps / 2) ** 2).clamp_min(0.0).sqrt()
    power = torch.where(
        fit, torch.frexp(size).exponent.clamp(lowest, highest) - lowest, highest - lowest + 1
    ).long()
    order = beyond.argsort()
    ascending = beyond[order[power[order].argsort(stable=True)]]
    count = torch.zeros(highest - lowest + 2, dtype=torch.int64, device=size.device)
    count.scatter_add_(0, power, torch.ones_like(power))
    last = (count.cumsum(0) - 1).clamp_min(0)
    middle = (last - count // 2).clamp_min(0)
    usual = torch.minimum(ascending[last], MEDIANS * ascending[middle])
    usual = torch.where(count >= LEAST_COLUMNS, usual, 0.0)[:-1]
    about = torch.nn.functional.pad(usual, (apart, apart + 1)).unfold(0, 2 * apart + 1, 1).amax(1)[power]
    return torch.where(fit, size * (about.square() + (eps / 4) ** 2).sqrt(), 0.0)


def _of_rows_and_columns(
    truth: torch.Tensor, value: torch.Tensor, peak: float, policy: Policy, finite: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the error of each column if those of its elements are as is usual in their row and in their column.

    In a row that is the median of all elements that are off. In a column it is the root mean square of its errors, each over
    what is usual in its row, but at most four times their lower quartile: columns that are exact in some rows, or off by
    shares that vary, have no usual one. Where rows are alike, that is the column's own error; where a few large ones decide,
    all rows tell. 0 for fewer than ``LEAST_ROWS``.

    Also returns how many elements decide a column's own error, at least 1: (Σe²)² / Σe⁴ of its errors e. If n normally
    distributed errors decide it, it is f times smaller than usual with a probability of about 1/fⁿ.
    """
    of_rows = truth.new_zeros(len(truth), 1)
    of_columns, second, fourth = (truth.new_zeros(truth.shape[1]) for _ in range(3))
    for start, stop in chunks(truth, policy):
        errors = distance(value[start:stop].double(), truth[start:stop], finite=finite).div_(peak)
        off = torch.where(errors > 0, errors, math.nan)
        of_rows[start:stop] = off.nanmedian(1, keepdim=True).values.nan_to_num_(0.0)
        squares = errors.square_()
        second += squares.sum(0)
        fourth += squares.square_().sum(0)
    used = of_rows[:, 0] > 0
    rows = int(used.sum())
    width = max(1, policy.chunk_elements // max(rows, 1))
    for start in range(0, truth.shape[1] if rows >= LEAST_ROWS else 0, width):
        part = slice(start, start + width)
        errors = distance(value[used, part].double(), truth[used, part], finite=finite).div_(peak)
        shares = errors / of_rows[used]
        low = shares.kthvalue(1 + (rows - 1) // 4, 0).values
        of_columns[part] = torch.minimum(shares.square_().mean(0).sqrt(), QUARTILES * low)
    usual = (of_columns * of_rows.square().mean().sqrt()).nan_to_num_(0.0, 0.0)
    count = (second.square() / fourth.clamp_min(torch.finfo(fourth.dtype).tiny)).clamp_min(1.0)
    return usual, count


def _unresolved(size: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Returns how large elements may be of a group that is nothing but 0 in float64, which may have no digits left for them.

    So is 1 + erf(x) 0 below -6, and 1e-17 in truth. Such a group was computed from numbers about as large as rows are, many
    of which may be 0 or small; but not from those that a mask or a power makes huge in a few rows, or in a few other groups.
    """
    small = rank(size, 0.1).clamp_min(1.0)
    return torch.finfo(torch.float64).eps * torch.minimum(rank(scale, 0.75), small)


def off_together(
    got: torch.Tensor,
    truth: torch.Tensor,
    together: Sequence[Together],
    tolerance: float,
    policy: Policy,
    finite: bool,
) -> tuple[float, float, str] | None:
    """Returns the error of a group that is larger than it may be, how large it may be, and which group that is; None if none is."""
    matrix, value = (x.reshape(-1, x.shape[-1]) if x.dim() else x for x in (truth, got))

    def errors_of(group: Together) -> torch.Tensor:
        if not group.dim and finite and fused.columns_fit(matrix, value):
            return fused.column_rms(value, matrix, group.peak)[1]
        return group_rms(truth, got, group.dim, group.peak, policy, finite=finite)

    found = [(group, errors_of(group)) for group in together]
    allowed = [torch.maximum(group.allowed, tolerance * group.size) for group, _ in found]
    off = [(errors > most).any() for (_, errors), most in zip(found, allowed, strict=True)]
    for (group, errors), most, wrong in zip(
        found, allowed, torch.stack(off).tolist() if off else (), strict=True
    ):
        if wrong:
            worst = int((errors / most).argmax())
            size = float(group.size[worst])
            values = f"about {size * group.peak:.3g}" if size else "0"
            what = f"in {'row' if group.dim else 'column'} {worst} as a whole, whose values are {values}"
            size = size or 1.0
            return float(errors[worst]) / size, float(most[worst]) / size, what
    return None


def together_dims(output: torch.Tensor) -> list[int]:
    """Returns along which dimensions of ``(rows, last dimension)`` an output's elements are taken together."""
    width = output.shape[-1] if output.dim() else 1
    dims = [0] if width > 1 and output.numel() // width >= LEAST else []
    return dims + ([1] if LEAST // 2 <= width < ROW else [])


def rank(values: torch.Tensor, share: float) -> torch.Tensor:
    """Returns the value that is larger than this share of those above 0; 0 where there are none."""
    positive = values[values > 0]
    place = 1 + int(share * (len(positive) - 1))
    return positive.kthvalue(place).values if len(positive) else values.new_zeros(())

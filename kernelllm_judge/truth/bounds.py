"""Derives how large an error of a floating output may be. ``docs/explanation/numerics.md`` explains the bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth import fused
from kernelllm_judge.truth.jumps import Jumps, find_jumps
from kernelllm_judge.truth.rows import (
    ROW,
    as_rows,
    chunks,
    distance,
    finite_sum,
    group_rms,
    group_sizes,
    largest,
    least_unit,
    rms,
    row_scale,
    unit_of,
)

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

    Numbers are root mean squares, relative to ``peak``; float64. A group of small numbers may not hide behind
    large ones beside it, and errors of several elements together are hardly ever small by chance.
    """

    dim: int
    """Dimension of the output, as a matrix ``(rows, last dimension)``, that is taken together."""
    size: torch.Tensor
    """Of each group of the exact output, one-dimensional."""
    allowed: torch.Tensor
    """Of each group's errors."""
    peak: float
    """The exact output's largest magnitude."""


@dataclass(frozen=True)
class ErrorBounds:
    """How far one floating output may be from the float64 one. Errors are relative to ``|exact| + scale``."""

    scale: torch.Tensor
    """Magnitude of each row of the exact output, ``(rows, 1)``, float64; see ``rows.row_scale``."""
    own: torch.Tensor
    """Error allowed in each row because of the original's own error, ``(rows, 1)``, float64."""
    sensitivity: torch.Tensor | None
    """Change of each element of the exact output under small perturbations of the inputs, ``(rows,
    width)``, float32."""
    outliers: int
    """How many elements may err more, because about as many of the original's elements do…"""
    worst: float
    """…and their largest allowed error."""
    jumps: Jumps | None
    """Which rows may err more."""
    finite: bool
    """Whether all elements of original and exact output are finite."""
    floor: float
    """Error that is always allowed, in every element."""
    together: tuple[Together, ...]
    steps: bool
    """Whether elements of the original's err more than is usual, as at a step: then nothing follows from all together."""


def floor_of(output: torch.Tensor, elements: int, policy: Policy, terms: int = 0) -> float:
    """Returns the relative error that is always allowed, for inputs with ``elements`` elements together.

    ``terms`` are known to be added up in an element.
    """
    eps = torch.finfo(output.dtype).eps
    if output.dtype not in (torch.float32, torch.float64):
        return policy.half_eps * eps
    most = max(terms, min(elements / max(output.numel(), 1), policy.most_terms))
    return (policy.single_eps + policy.terms_eps * math.sqrt(most)) * eps


def derive_bounds(
    original: torch.Tensor,
    truth: torch.Tensor,
    nearby: list[torch.Tensor],
    known: bool,
    policy: Policy,
    elements: int,
    others: Sequence[tuple[torch.Tensor, torch.Tensor]],
    terms: int = 0,
    jumping: Sequence[torch.Tensor] = (),
) -> ErrorBounds:
    """Derives the bounds of one floating leaf.

    ``others`` are results whose errors count as the original's own, ``jumping`` errors of rows in further runs, see ``jumps``.
    Corrects ``truth`` where float64's range changes the meaning.
    """
    rows, width = as_rows(original).shape
    floor = floor_of(original, elements, policy, terms)
    most = torch.finfo(original.dtype).max
    scale = truth.new_zeros(rows, 1)
    errs = truth.new_zeros(rows, 1)
    sensitivity = torch.zeros(rows, width, dtype=torch.float32, device=truth.device) if nearby else None
    finite = not rows or bool(finite_sum(original) & (torch.linalg.vector_norm(truth, math.inf) <= most))
    at_once = finite and not nearby and not others and fused.rows_fit(as_rows(truth), as_rows(original))
    if at_once:
        scale, errs = fused.row_bounds(as_rows(original), as_rows(truth), least_unit(original.dtype))
    for start, stop in () if at_once else chunks(as_rows(truth), policy):
        o, t = as_rows(original)[start:stop], as_rows(truth)[start:stop]
        wide = o.double()
        if not finite:  # e.g. a mask filled with the dtype's lowest value
            t.copy_(_in_range(t, wide, most))
        scale[start:stop] = row_scale(t if finite else torch.where(t.abs() <= most, t, 0.0))
        unit = unit_of(t, scale[start:stop], original.dtype, finite)
        errs[start:stop] = distance(wide, t, finite=finite).div_(unit).amax(1, keepdim=True)
        for other in others:
            there, exactly = (as_rows(leaf)[start:stop].double() for leaf in other)
            exactly = exactly if finite else _in_range(exactly, there, most)
            also = distance(there, exactly).div_(unit).amax(1, keepdim=True)
            errs[start:stop] = torch.maximum(errs[start:stop], also)
        if sensitivity is not None:
            near = (as_rows(m)[start:stop] for m in nearby)
            steps = torch.stack([distance(m if finite else _in_range(m, wide, most), t) for m in near]).amax(
                0
            )
            # By chance a single element may not change; then its row's typical change counts.
            typical = rms(steps, 1)
            sensitivity[start:stop] = torch.maximum(steps, typical) / unit * (1 + 1e-6)  # float32 rounds
    if not known:
        errs.fill_(floor)
    factor = policy.own_error_factor
    typical_row = errs.median() if rows else errs.sum()
    own = factor * torch.maximum(errs, typical_row)
    own = torch.where(errs > policy.noise, policy.noise_factor * errs, own)
    usual = (factor * typical_row).clamp_min(floor)
    highest, lowest = torch.stack([errs.max() if rows else errs.sum(), usual]).tolist()
    exceeding = errs.new_zeros(())
    if at_once and highest > lowest:
        every = usual.expand(rows, 1).contiguous()
        least = least_unit(original.dtype)
        exceeding = fused.errors(as_rows(original), as_rows(truth), scale, every, None, least)[0]
    for start, stop in chunks(as_rows(truth), policy) if highest > lowest and not at_once else ():
        o, t = as_rows(original)[start:stop], as_rows(truth)[start:stop]
        unit = unit_of(t, scale[start:stop], original.dtype, finite)
        bound = usual if sensitivity is None else torch.maximum(usual, sensitivity[start:stop])
        exceeding += (distance(o.double(), t, finite=finite).div_(unit) > bound).sum()
    outlying = int(exceeding)
    outliers = min(int(factor * outlying), int(policy.outlier_share * original.numel()))
    worst = factor * highest
    # At a step, as in rounding, a few elements may be far off; then nothing follows from all together.
    known &= not outlying
    together = _together(original, truth, nearby, others, floor, scale, policy, finite) if known else ()
    jumps = find_jumps(jumping, lowest, factor) if jumping else None
    return ErrorBounds(
        scale, own, sensitivity, outliers, worst, jumps, finite, floor, together, bool(outlying)
    )


def _in_range(exact: torch.Tensor, value: torch.Tensor, most: float) -> torch.Tensor:
    """Returns float64 values; in their place the dtype's own where only those are in its range."""
    return torch.where(value.isfinite() & ~(exact.abs() <= most), value, exact)


def together_dims(output: torch.Tensor) -> list[int]:
    """Returns along which dimensions of ``(rows, last dimension)`` an output's elements are taken together."""
    width = output.shape[-1] if output.dim() else 1
    dims = [0] if width > 1 and output.numel() // width >= LEAST else []
    return dims + ([1] if LEAST // 2 <= width < ROW else [])


def _together(
    original: torch.Tensor,
    truth: torch.Tensor,
    nearby: list[torch.Tensor],
    others: Sequence[tuple[torch.Tensor, torch.Tensor]],
    floor: float,
    scale: torch.Tensor,
    policy: Policy,
    finite: bool,
) -> tuple[Together, ...]:
    """Derives how far columns, and rows shorter than ``ROW``, may be off together. ``scale`` is that of ``ErrorBounds``."""
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
    small = _rank(size, 0.1).clamp_min(1.0)
    return torch.finfo(torch.float64).eps * torch.minimum(_rank(scale, 0.75), small)


def usual_size(bounds: ErrorBounds) -> float:
    """Returns the magnitude of an output's larger rows, but for the largest quarter; 0 if there are none but zeros."""
    return float(_rank(bounds.scale, 0.75))


def with_unresolved_rows(
    bounds: ErrorBounds, truth: torch.Tensor, dtype: torch.dtype, usual: float, policy: Policy
) -> ErrorBounds:
    """Returns bounds that allow what float64 may have rounded to 0 in rows that are nothing else, see ``_unresolved``.

    They were computed from numbers of the output's ``usual`` magnitude, but at most 1.
    """
    zeros = bounds.scale == 0
    if not bool(zeros.any()):
        return bounds
    # A row that overflows has no scale either.
    parts = [as_rows(truth)[start:stop] for start, stop in chunks(as_rows(truth), policy)]
    zeros &= torch.cat([(part == 0).all(1, keepdim=True) for part in parts])
    allowed = policy.own_error_factor * torch.finfo(torch.float64).eps * min(usual, 1.0)
    # Errors are relative to the least unit there.
    widened = bounds.own.clamp_min(allowed / least_unit(dtype))
    return replace(bounds, own=torch.where(zeros, widened, bounds.own))


def _rank(values: torch.Tensor, share: float) -> torch.Tensor:
    """Returns the value that is larger than this share of those above 0; 0 where there are none."""
    positive = values[values > 0]
    place = 1 + int(share * (len(positive) - 1))
    return positive.kthvalue(place).values if len(positive) else values.new_zeros(())

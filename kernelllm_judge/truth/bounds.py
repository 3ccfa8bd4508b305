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
    as_rows,
    chunks,
    distance,
    finite_sum,
    least_unit,
    rms,
    row_scale,
    unit_of,
)
from kernelllm_judge.truth.together import Together, derive_together, rank

ROUNDING = "rounding"
OWN = "the original's own error"
SENSITIVITY = "how far its inputs' last digits move it"
TOLERANCE = "the marker's tolerance"
TOGETHER = "how far a row or column may be off as a whole"
PLACES = "places of NaN and infinities"
EQUALITY = "equality"
"""The bounds, as reasons name them."""


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

    def which(self, row: int, allowed: float, floor: float, stated: bool) -> str:
        """Says which bound allows an element so much in its row; ``floor`` is a tolerance if one is ``stated``."""
        if allowed <= floor:
            return TOLERANCE if stated else ROUNDING
        return OWN if allowed <= float(self.own[row]) else SENSITIVITY


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
    together = derive_together(original, truth, nearby, others, floor, scale, policy, finite) if known else ()
    jumps = find_jumps(jumping, lowest, factor) if jumping else None
    return ErrorBounds(
        scale, own, sensitivity, outliers, worst, jumps, finite, floor, together, bool(outlying)
    )


def _in_range(exact: torch.Tensor, value: torch.Tensor, most: float) -> torch.Tensor:
    """Returns float64 values; in their place the dtype's own where only those are in its range."""
    return torch.where(value.isfinite() & ~(exact.abs() <= most), value, exact)


def usual_size(bounds: ErrorBounds) -> float:
    """Returns the magnitude of an output's larger rows, but for the largest quarter; 0 if there are none but zeros."""
    return float(rank(bounds.scale, 0.75))


def with_unresolved_rows(
    bounds: ErrorBounds, truth: torch.Tensor, dtype: torch.dtype, usual: float, policy: Policy
) -> ErrorBounds:
    """Returns bounds that allow what float64 may have rounded to 0 in rows that are nothing else, see ``together._unresolved``.

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

"""Compares outputs with float64, and says which bound a wrong one breaks.

Outputs are compared row by row, so that large rows do not hide errors in small ones. ``docs/explanation/numerics.md``
derives the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth import fused
from kernelllm_judge.truth.bounds import EQUALITY, PLACES, TOGETHER, ErrorBounds, derive_bounds
from kernelllm_judge.truth.rows import all_finite, as_rows, chunks, least_unit, unit_of
from kernelllm_judge.truth.together import off_together


@dataclass(frozen=True)
class Expected:
    """The reference outputs of one probe, with error bounds. Leaves are tensors on the judge's device."""

    structure: Any
    """How the leaves nest, see ``shared.structure``."""
    original: tuple[Any, ...]
    """Leaves as the original computes them."""
    exact: tuple[Any, ...]
    """Floating leaves in float64, others as in ``original``. Elements that are not finite are not finite
    in the original either, or overflow."""
    bounds: tuple[ErrorBounds | tuple[torch.Tensor, ...], ...]
    """One per leaf. For integer and boolean leaves: alternative values, where rounding decides."""
    free: bool = False
    """Whether elements that are not finite in the original may have any value."""
    note: str = ""
    """Explains in which way the comparison is weaker than usual; empty if it is not."""
    start: int = 0
    """Where these are some rows of the outputs: the number of the first one."""


@dataclass(frozen=True)
class Difference:
    """The result of comparing one output leaf.

    ``measured`` and ``allowed`` are those of the worst element.
    """

    passed: bool
    measured: float
    allowed: float
    detail: str = ""
    bound: str = ""
    """Which of ``bounds`` a wrong output breaks, in words: where a wrong refusal is to be looked for."""

    @property
    def figures(self) -> str:
        """What was measured and allowed, and by which bound, in words."""
        by = f" by {self.bound}" if self.bound else ""
        return f"relative error {self.measured:.3g}, allowed {self.allowed:.3g}{by}"


def expect(
    structure: Any,
    original: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor] | None,
    nearby: Sequence[Sequence[torch.Tensor]],
    policy: Policy,
    *,
    elements: int = 0,
    terms: int = 0,
    free: bool = False,
    note: str = "",
    others: Sequence[tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]] = (),
    jumping: Sequence[Sequence[torch.Tensor | None]] = (),
) -> Expected:
    """Derives the error bounds of every leaf.

    Args:
        exact: leaves in float64; None if unavailable: then outputs are compared with the original's.
        nearby: leaves in float64 for slightly perturbed inputs, one list per perturbation.
        elements: number of elements of all inputs together.
        terms: products that are added up in one element at most.
        others: pairs of leaves, as the original might compute them and in float64, whose errors count as its own.
        jumping: errors of each leaf's rows, one list per further run, see ``jumps``.
    """
    truths: list[torch.Tensor] = []
    bounds: list[ErrorBounds | tuple[torch.Tensor, ...]] = []
    for i, leaf in enumerate(original):
        near = [leaves[i] for leaves in nearby]
        if not leaf.is_floating_point():
            # An integer output that changes with the inputs' last digits has no single right value. Which of several
            # equal inputs an index names stays the original's choice: perturbations would choose at random.
            near += [exact[i]] if exact else []
            bounds.append(tuple(other for other in near if not torch.equal(other, leaf)))
            truths.append(leaf)
            continue
        truth = leaf.double() if exact is None else exact[i].contiguous()
        if free and not all_finite(leaf):
            truth = torch.where(leaf.isfinite(), truth, leaf.double())
        also = [(leaves[i], exactly[i]) for leaves, exactly in others]
        rows = [errors for run in jumping if (errors := run[i]) is not None]
        bounds.append(
            derive_bounds(leaf, truth, near, exact is not None, policy, elements, also, terms, rows)
        )
        truths.append(truth)
    return Expected(structure, tuple(original), tuple(truths), tuple(bounds), free, note)


def unrounded(original: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> bool:
    """Returns whether the original makes no rounding error at all."""
    return all(torch.equal(ours.to(truth.dtype), truth) for ours, truth in zip(original, exact, strict=True))


def compare(
    got: torch.Tensor,
    expected: Expected,
    leaf: int,
    policy: Policy,
    tolerance: float | None,
    *,
    described: bool = True,
) -> Difference:
    """Compares one output leaf with the expected one.

    Floating outputs must be within ``ErrorBounds`` of float64 in every element. NaN and infinities must
    be where the original has them; where only the original overflows, the finite value is right, too.
    Integers and booleans must be equal.

    Args:
        got: same shape and dtype as the original's output.
        tolerance: the marker's ``tolerance``, which replaces the derived relative error; or None.
        described: whether to say where it is wrong, for which more of it is read.
    """
    original, exact, bounds = expected.original[leaf], expected.exact[leaf], expected.bounds[leaf]
    if not isinstance(bounds, ErrorBounds):
        return _compare_equal(got, original, bounds, expected)
    if got.numel() == 0:
        return Difference(True, 0.0, 0.0, expected.note)
    floor = bounds.floor if tolerance is None else max(tolerance, 1e-300)
    base = bounds.own.clamp_min(floor)
    finite = bounds.finite and all_finite(got)
    parts: list[torch.Tensor] = []
    rows = as_rows(exact), as_rows(got)
    at_once = finite and fused.rows_fit(*rows)
    if at_once:
        least = least_unit(got.dtype)
        parts = [fused.errors(rows[1], rows[0], bounds.scale, base, bounds.sensitivity, least)]
    for start, stop in () if at_once else chunks(as_rows(exact), policy):
        g, o, t = (as_rows(x)[start:stop] for x in (got, original, exact))
        allowed = base[start:stop]
        if bounds.sensitivity is not None:
            allowed = torch.maximum(allowed, bounds.sensitivity[start:stop])
        unit = unit_of(t, bounds.scale[start:stop], got.dtype, bounds.finite)
        error = (g.double() - t).abs_().div_(unit)
        close = error <= allowed
        if not finite:
            close |= _accepted_nonfinite(g, o, t, allowed, expected.free)
            misplaced = ~close & (g.isfinite() != o.isfinite())
            if bool(misplaced.any()):
                if not described:
                    return Difference(False, math.inf, 0.0, bound=PLACES)
                first = start * t.shape[1] + int(misplaced.reshape(-1).to(torch.uint8).argmax())
                return Difference(False, math.inf, 0.0, _where(first, got, original, expected.start), PLACES)
            numbers = t.isfinite() & g.isfinite()
            error = torch.where(numbers, error, torch.where(close, 0.0, math.inf))
        highest, worst = (error / allowed).reshape(-1).max(0)
        there = torch.take(error, worst), torch.take(allowed.expand_as(t), worst)
        at = (worst + start * t.shape[1]).double()
        parts.append(torch.stack([(~close).sum().double(), highest, at, *there]))
    # All of it is read at once: on a GPU each read waits.
    figures = torch.stack(parts).tolist()
    wrong = int(sum(count for count, *_ in figures))
    _, _, farthest, measured, permitted = max(
        figures, key=lambda part: -1.0 if math.isnan(part[1]) else part[1]
    )
    place = int(farthest)
    if wrong == 0:
        off = off_together(got, exact, bounds.together, tolerance or 0.0, policy, finite)
        passed = Difference(True, measured, permitted, expected.note)
        return Difference(False, *off, TOGETHER) if off else passed
    jumps = bounds.jumps
    if wrong <= bounds.outliers or jumps:
        rows_off, errors = _rows_off(got, expected, leaf, bounds, base, finite, policy)
        largest = float(errors.amax())
        if wrong <= bounds.outliers and largest <= bounds.worst:
            return Difference(True, largest, bounds.worst, expected.note)
    if jumps and jumps.allow(rows_off, errors):
        rest = torch.where(rows_off[:, None], rows[0].to(got.dtype), rows[1]).view_as(got)
        off = off_together(rest, exact, bounds.together, tolerance or 0.0, policy, finite)
        passed = Difference(True, largest, jumps.farthest, expected.note)
        return Difference(False, *off, TOGETHER) if off else passed
    if not described:
        return Difference(False, measured, permitted)
    bound = bounds.which(place // rows[0].shape[1], permitted, floor, tolerance is not None)
    shown = exact if math.isfinite(measured) else original  # which has the NaN or infinity that is asked for
    return Difference(False, measured, permitted, _where(place, got, shown, expected.start), bound)


def _rows_off(
    got: torch.Tensor,
    expected: Expected,
    leaf: int,
    bounds: ErrorBounds,
    base: torch.Tensor,
    finite: bool,
    policy: Policy,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns in which rows elements err more than they may, and the largest error of such an element there, ``(rows,)``.

    That of an element whose error is about its own sensitivity does not count.
    """
    original, exact = expected.original[leaf], expected.exact[leaf]
    off, largest = [], []
    for start, stop in chunks(as_rows(exact), policy):
        g, o, t = (as_rows(x)[start:stop] for x in (got, original, exact))
        allowed = base[start:stop]
        error = (g.double() - t).abs_().div_(unit_of(t, bounds.scale[start:stop], got.dtype, bounds.finite))
        wrong = ~(error <= allowed)
        if not finite:
            wrong &= ~_accepted_nonfinite(g, o, t, allowed, expected.free)
            error = torch.where(t.isfinite() & g.isfinite(), error, math.inf)
        if bounds.sensitivity is not None:
            wrong &= ~(error <= bounds.sensitivity[start:stop])
        off.append(wrong.any(1))
        if bounds.sensitivity is not None:
            wrong &= ~(error <= policy.own_error_factor * bounds.sensitivity[start:stop])
        largest.append(torch.where(wrong, error, 0.0).amax(1))
    return torch.cat(off), torch.cat(largest)


def _compare_equal(
    got: torch.Tensor, original: torch.Tensor, others: Sequence[torch.Tensor], expected: Expected
) -> Difference:
    """Compares integers or booleans, each of which must be the original's or one of the alternatives."""
    wrong = got != original
    for other in others:
        wrong &= got != other
    if not (count := int(wrong.sum())):
        return Difference(True, 0.0, 0.0, expected.note)
    first = int(wrong.reshape(-1).to(torch.uint8).argmax())
    return Difference(False, float(count), 0.0, _where(first, got, original, expected.start), EQUALITY)


def _accepted_nonfinite(
    got: torch.Tensor, original: torch.Tensor, exact: torch.Tensor, allowed: torch.Tensor, free: bool
) -> torch.Tensor:
    """Returns a mask of elements that are right although they, or the expected ones, are not finite."""
    most = torch.finfo(got.dtype).max
    nonfinite = ~original.isfinite()
    accepted = ((got == original) | (got.isnan() & original.isnan())) & nonfinite
    # A value so near to overflow that rounding decides may overflow, or not.
    accepted |= (got == exact.sign() * math.inf) & (exact.abs() * (1 + allowed) >= most)
    return accepted | (nonfinite & ~exact.isfinite()) if free else accepted


def _where(place: int, got: torch.Tensor, expected: torch.Tensor, start: int) -> str:
    """Describes one element, given by its position in the flattened tensors."""
    index = [int(i) for i in torch.unravel_index(torch.tensor(place), got.shape)]
    index = [start + index[0], *index[1:]] if index else index
    return (
        f"at {index}: expected {expected.reshape(-1)[place].item():.9g}, "
        f"got {got.reshape(-1)[place].item():.9g}"
    )

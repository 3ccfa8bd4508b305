"""Compares outputs with float64, and says which bound a wrong one breaks.

Outputs are compared row by row, so that large rows do not hide errors in small ones. ``docs/explanation/numerics.md``
derives the bounds.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm_judge.core.eight_bits import steps
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.bounds import (
    EQUALITY,
    PLACES,
    STEPS,
    TOGETHER,
    Derivation,
    ErrorBounds,
    StepBounds,
)
from kernelllm_judge.truth.honest import Evaluation, shape_and_kind
from kernelllm_judge.truth.rows import all_finite, as_rows, chunks, rms, unit_of


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
    bounds: tuple[ErrorBounds | StepBounds | tuple[torch.Tensor, ...], ...]
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
    exact: Sequence[Any] | None,
    nearby: Sequence[Sequence[Any]],
    policy: Policy,
    *,
    elements: int = 0,
    free: bool = False,
    note: str = "",
    evaluations: Iterable[Evaluation] = (),
    usual: Callable[[int], float | None] = lambda leaf: None,
    steady: bool = False,
) -> Expected:
    """Derives the error bounds of every leaf.

    Leaves of another form than the original's say nothing, nor does a run that gives another number of them.

    Args:
        exact: leaves in float64; None if unavailable: then outputs are compared with the original's.
        nearby: leaves in float64 for slightly perturbed inputs, one list per perturbation.
        elements: number of elements of all inputs together.
        evaluations: further honest ones; each is read once.
        usual: returns the usual magnitude of a leaf, if it is known.
        steady: whether a leaf in which the original makes no rounding error has its steps at the same places in every kernel.
    """
    forms = list(map(shape_and_kind, original))

    def fits(leaves: Sequence[Any] | None, i: int) -> bool:
        return leaves is not None and len(leaves) == len(forms) and shape_and_kind(leaves[i]) == forms[i]

    found = [
        Derivation(leaf, exact[i] if exact and fits(exact, i) else None, policy, free=free, steady=steady)
        for i, leaf in enumerate(original)
    ]
    for run in nearby:
        for i, leaf in enumerate(found):
            if fits(run, i):
                leaf.move(run[i])
    terms = 0
    for each in evaluations:
        terms = max(terms, each.terms)
        for i, leaf in enumerate(found):
            if fits(each.leaves, i) and (each.exact is None or fits(each.exact, i)):
                leaf.add(each.leaves[i], None if each.exact is None else each.exact[i])
    bounds = tuple(leaf.bounds(elements, terms, usual(i)) for i, leaf in enumerate(found))
    return Expected(structure, tuple(original), tuple(leaf.truth for leaf in found), bounds, free, note)


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

    Floating outputs must be within ``ErrorBounds`` of float64 in every element, and in every row and column together. NaN and
    infinities must be where the original has them; where only the original overflows, the finite value is right, too.
    Integers and booleans must be equal.

    Args:
        got: same shape and dtype as the original's output.
        tolerance: the marker's ``tolerance``, which replaces the derived relative error; or None.
        described: whether to say where it is wrong, for which more of it is read.
    """
    original, exact, bounds = expected.original[leaf], expected.exact[leaf], expected.bounds[leaf]
    if isinstance(bounds, StepBounds):
        return _compare_steps(got, original, bounds, expected)
    if not isinstance(bounds, ErrorBounds):
        return _compare_equal(got, original, bounds, expected)
    if got.numel() == 0:
        return Difference(True, 0.0, 0.0, expected.note)
    floor = bounds.floor if tolerance is None else max(tolerance, 1e-300)
    rows, misplaced = _by_row(got, expected, leaf, floor)
    if misplaced is not None:
        detail = _where(misplaced, got, original, expected.start) if described else ""
        return Difference(False, math.inf, 0.0, detail, PLACES)
    least, width = 0.0 if tolerance is None else tolerance, exact.numel() // len(bounds.rows)
    shares, usual = (
        rows.together / rms_of[:, 0].clamp_min(max(least, 1e-300)) for rms_of in (bounds.rows, bounds.typical)
    )
    off = (rows.wrong > 0) | ~(shares <= policy.together(width))
    apart = off | (rows.error > bounds.usual[:, 0].clamp_min(floor))
    worst, uneven = rows.ratio.argmax(), shares.argmax()  # NaN is the largest
    # All of it is read at once: on a GPU each read waits.
    figures = [
        off.sum(),
        apart.any(),
        rows.wrong.sum(),
        rms(torch.where(apart, 0.0, usual)[:, None], 0)[0, 0],
    ]
    figures += [torch.where(off, of_row, 0.0).amax() for of_row in (rows.error, rows.together)]
    figures += [torch.take(of_row, worst) for of_row in (rows.place, rows.error, rows.allowed)]
    figures += [uneven, *(torch.take(of_row, uneven) for of_row in (rows.together, shares))]
    count, unusual, wrong, whole, *farthest, place, measured, allowed, row, together, share = torch.stack(
        [figure.double() for figure in figures]
    ).tolist()
    excused = count <= bounds.exceptions and all(map(operator.le, farthest, bounds.farthest))
    if count and not excused:
        if not described:
            return Difference(False, measured, allowed)
        # The original has the NaN or infinity that is asked for.
        shown = exact if math.isfinite(measured) else original
        if wrong:
            bound = bounds.which(int(place) // width, allowed, floor, tolerance is not None)
            return Difference(False, measured, allowed, _where(int(place), got, shown, expected.start), bound)
        detail = f"together in the row {_where(int(row) * width, got, shown, expected.start)}"
        return Difference(False, together, policy.together(width) * together / share, detail, TOGETHER)
    if not whole <= policy.together(exact.numel()):
        detail = "in all elements together, in units of the original's errors"
        return Difference(False, whole, policy.together(exact.numel()), detail, TOGETHER)
    if unusual:
        got = torch.where(apart[:, None], as_rows(exact).to(got.dtype), as_rows(got)).view_as(got)
    if count:
        measured, allowed = farthest[0], bounds.farthest[0]
    return _off_together(got, bounds, least) or Difference(True, measured, allowed, expected.note)


@dataclass(frozen=True)
class _Rows:
    """Figures of each row of an output, ``(rows,)``, float64."""

    wrong: torch.Tensor
    """How many elements err more than they may…"""
    ratio: torch.Tensor
    """…and of the worst one the error over what is allowed, its place in the flattened output, the error, what is allowed."""
    place: torch.Tensor
    error: torch.Tensor
    allowed: torch.Tensor
    together: torch.Tensor
    """Root mean square of the errors."""


def _by_row(got: torch.Tensor, expected: Expected, leaf: int, floor: float) -> tuple[_Rows, int | None]:
    """Returns how far an output is off in each row; or the place of an element that is not finite, or must not be."""
    original, exact, bounds = expected.original[leaf], expected.exact[leaf], expected.bounds[leaf]
    assert isinstance(bounds, ErrorBounds)
    ruler, base = bounds.ruler, bounds.worst.clamp_min(floor)
    finite = ruler.finite and all_finite(got)
    parts: list[torch.Tensor] = []
    for start, stop in chunks(as_rows(exact), ruler.policy):
        g, o, t = (as_rows(x)[start:stop] for x in (got, original, exact))
        allowed = base[start:stop].expand_as(t)
        if bounds.sensitivity is not None:
            allowed = torch.maximum(allowed, bounds.sensitivity[start:stop])
        error = (g.double() - t).abs_().div_(unit_of(t, ruler.scale[start:stop], got.dtype, ruler.finite))
        close = error <= allowed
        if not finite:
            close |= _accepted_nonfinite(g, o, t, allowed, expected.free)
            misplaced = ~close & (g.isfinite() != o.isfinite())
            if bool(misplaced.any()):
                first = int(misplaced.reshape(-1).byte().argmax())
                return _Rows(*t.new_zeros(6, 0)), start * t.shape[1] + first
            numbers = t.isfinite() & g.isfinite()
            error = torch.where(numbers, error, torch.where(close, 0.0, math.inf))
        highest, worst = (error / allowed).max(1, keepdim=True)
        places = worst + torch.arange(start, stop, device=t.device)[:, None] * t.shape[1]
        there = [highest, places, error.gather(1, worst), allowed.gather(1, worst), rms(error, 1)]
        parts.append(torch.cat([(~close).sum(1, keepdim=True).double(), *there], 1))
    return _Rows(*torch.cat(parts).unbind(1)), None


def _off_together(got: torch.Tensor, bounds: ErrorBounds, tolerance: float) -> Difference | None:
    """Returns how far the worst column or short row of an output is off as a whole, if it is too far; None if none is."""
    ruler = bounds.ruler
    allowed = [
        torch.maximum(most, (tolerance * size).nan_to_num_(math.inf, math.inf))
        for most, size in zip(bounds.groups, ruler.sizes, strict=True)
    ]
    found = ruler.groups(got)
    off = [~(errors <= most).all() for errors, most in zip(found, allowed, strict=True)]
    for number, wrong in enumerate(torch.stack(off).tolist() if off else ()):
        if wrong:
            errors, most = found[number], allowed[number]
            worst = int((errors / most).argmax())
            size = float(ruler.sizes[number][worst])
            values = f"about {size * ruler.peak:.3g}" if size else "0"
            kind = "row" if ruler.dims[number] else "column"
            detail = f"in {kind} {worst} as a whole, whose values are {values}"
            size = size or 1.0
            return Difference(False, float(errors[worst]) / size, float(most[worst]) / size, detail, TOGETHER)
    return None


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


def _compare_steps(
    got: torch.Tensor, original: torch.Tensor, bounds: StepBounds, expected: Expected
) -> Difference:
    """Compares floats of 8 bits, each of which must be a right value, or in a few places the next one. NaN must be where it is."""
    ours = steps(got)
    off = torch.stack([(ours - steps(right)).abs() for right in (original, *bounds.others)]).amin(0)
    count, most = int((off > 0).sum()), int(off.amax()) if off.numel() else 0
    if most <= 1 and count <= bounds.flips:
        return Difference(True, float(count), float(bounds.flips), expected.note)
    first = int(off.reshape(-1).argmax())
    detail = _where(first, got, original, expected.start)
    return Difference(False, float(count), float(bounds.flips if most <= 1 else 0), detail, STEPS)


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

"""Compares outputs with float64, and derives how large an error may be.

Outputs are compared row by row, so that large rows do not hide errors in small ones. ``docs/explanation/numerics.md``
derives the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_kernelllm.judge.policy import Policy

ROW = 32
"""Fewest elements of a row, whose errors are taken together; shorter last dimensions are merged with those before them."""

LEAST = 8
"""Fewest elements of a column that are judged together; half as many of a row."""


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
    """Magnitude of each row of the exact output, ``(rows, 1)``, float64; see ``_row_scale``."""
    own: torch.Tensor
    """Error allowed in each row because of the original's own error, ``(rows, 1)``, float64."""
    sensitivity: torch.Tensor | None
    """Change of each element of the exact output under small perturbations of the inputs, ``(rows,
    width)``, float32."""
    outliers: int
    """How many elements may err more, because about as many of the original's elements do…"""
    worst: float
    """…and their largest allowed error."""
    finite: bool
    """Whether all elements of original and exact output are finite."""
    floor: float
    """Error that is always allowed, in every element."""
    together: tuple[Together, ...]


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
    """Whether elements that are finite neither in the original nor in float64 may have any value."""
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


def expect(
    structure: Any,
    original: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor] | None,
    nearby: Sequence[Sequence[torch.Tensor]],
    policy: Policy,
    *,
    elements: int = 0,
    free: bool = False,
    note: str = "",
    elsewhere: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]] | None = None,
) -> Expected:
    """Derives the error bounds of every leaf.

    Args:
        structure: how the leaves nest.
        original: leaves as the original computes them.
        exact: leaves in float64; None if unavailable: then outputs are compared with the original's.
        nearby: leaves in float64 for slightly perturbed inputs, one list per perturbation.
        policy: thresholds.
        elements: number of elements of all inputs together.
        free: see ``Expected``.
        note: see ``Expected``.
        elsewhere: leaves of the original and in float64 for other, slightly perturbed inputs: where the inputs are
            equal numbers, the original's errors may cancel by chance, and there they do not.
    """
    truths: list[torch.Tensor] = []
    bounds: list[ErrorBounds | tuple[torch.Tensor, ...]] = []
    for i, leaf in enumerate(original):
        others = [leaves[i] for leaves in nearby]
        if not leaf.is_floating_point():
            # An integer output that changes with the inputs' last digits has no single right value. Which
            # of several
            # equal inputs an index names stays the original's choice: perturbations would choose at random.
            others += [exact[i]] if exact else []
            bounds.append(tuple(other for other in others if not torch.equal(other, leaf)))
            truths.append(leaf)
            continue
        truth = leaf.double() if exact is None else exact[i].contiguous()
        another = None if elsewhere is None else (elsewhere[0][i], elsewhere[1][i])
        bounds.append(_bounds(leaf, truth, others, exact is not None, policy, elements, another))
        truths.append(truth)
    return Expected(structure, tuple(original), tuple(truths), tuple(bounds), free, note)


def unrounded(original: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> bool:
    """Returns whether the original makes no rounding error at all."""
    return all(torch.equal(ours.to(truth.dtype), truth) for ours, truth in zip(original, exact, strict=True))


def compare(
    got: torch.Tensor, expected: Expected, leaf: int, policy: Policy, tolerance: float | None
) -> Difference:
    """Compares one output leaf with the expected one.

    Floating outputs must be within ``ErrorBounds`` of float64 in every element. NaN and infinities must
    be where the original has them; where only the original overflows, the finite value is right, too.
    Integers and booleans must be equal.

    Args:
        got: same shape and dtype as the original's output.
        expected: the probe's reference outputs.
        leaf: index of the leaf.
        policy: thresholds.
        tolerance: the marker's ``tolerance``, which replaces the derived relative error; or None.
    """
    original, exact, bounds = expected.original[leaf], expected.exact[leaf], expected.bounds[leaf]
    if not isinstance(bounds, ErrorBounds):
        wrong = got != original
        for other in bounds:
            wrong &= got != other
        count = int(wrong.sum())
        detail = (
            _where(int(wrong.reshape(-1).to(torch.uint8).argmax()), got, original, expected.start)
            if count
            else ""
        )
        return Difference(count == 0, float(count), 0.0, detail or expected.note)
    if got.numel() == 0:
        return Difference(True, 0.0, 0.0, expected.note)
    floor = bounds.floor if tolerance is None else max(tolerance, 1e-300)
    base = bounds.own.clamp_min(floor)
    wrong, ratio, measured, permitted, place = 0, -1.0, 0.0, 0.0, 0
    for start, stop in _chunks(_rows(exact), policy):
        g, o, t = (_rows(x)[start:stop] for x in (got, original, exact))
        allowed = base[start:stop]
        if bounds.sensitivity is not None:
            allowed = torch.maximum(allowed, bounds.sensitivity[start:stop])
        wide = g.double()
        error = (wide - t).abs_().div_(_unit(t, bounds.scale[start:stop], got.dtype, bounds.finite))
        close = error <= allowed
        if not (bounds.finite and _all_finite(wide)):
            close |= _accepted_nonfinite(g, o, t, allowed, expected.free)
            misplaced = ~close & (g.isfinite() != o.isfinite())
            if bool(misplaced.any()):
                first = start * t.shape[1] + int(misplaced.reshape(-1).to(torch.uint8).argmax())
                return Difference(False, math.inf, 0.0, _where(first, got, original, expected.start))
            numbers = t.isfinite() & g.isfinite()
            error = torch.where(numbers, error, torch.where(close, 0.0, math.inf))
        wrong += int(close.numel() - close.sum())
        ratios = (error / allowed).reshape(-1)
        worst = int(ratios.argmax())
        if float(ratios[worst]) > ratio:
            ratio, measured = float(ratios[worst]), float(error.reshape(-1)[worst])
            permitted = float(allowed.expand_as(t).reshape(-1)[worst])
            place = start * t.shape[1] + worst
    if wrong == 0:
        off = _off_together(got, exact, bounds, tolerance or 0.0, policy)
        return off or Difference(True, measured, permitted, expected.note)
    if wrong <= bounds.outliers and measured <= bounds.worst:
        return Difference(True, measured, bounds.worst, expected.note)
    return Difference(False, measured, permitted, _where(place, got, exact, expected.start))


def agrees(got: torch.Tensor, original: torch.Tensor, policy: Policy) -> bool:
    """Whether an output is so near to the original's that it passes ``compare`` whatever float64 gives.

    Half of the error that is always allowed may lie between both; the original's own error, of which a multiple
    is allowed, makes up for the rest.
    """
    if not got.is_floating_point():
        return torch.equal(got, original)
    eps = torch.finfo(got.dtype).eps
    near = (policy.single_eps if got.dtype in (torch.float32, torch.float64) else policy.half_eps) * eps / 2
    ours, theirs = _rows(got), _rows(original)
    for start, stop in _chunks(ours, policy):
        g, o = ours[start:stop], theirs[start:stop]
        if torch.equal(g, o):
            continue
        close = (g - o).abs_() <= o.abs().mul_(near)
        if not bool(close.all()):
            close |= (g == o) | (g.isnan() & o.isnan())
            if not bool(close.all()):
                return False
    return True


def _accepted_nonfinite(
    got: torch.Tensor, original: torch.Tensor, exact: torch.Tensor, allowed: torch.Tensor, free: bool
) -> torch.Tensor:
    """Returns a mask of elements that are right although they, or the expected ones, are not finite."""
    largest = torch.finfo(got.dtype).max
    nonfinite = ~original.isfinite()
    accepted = ((got == original) | (got.isnan() & original.isnan())) & nonfinite
    # A value so near to overflow that rounding decides may overflow, or not.
    accepted |= (got == exact.sign() * math.inf) & (exact.abs() * (1 + allowed) >= largest)
    return accepted | (nonfinite & ~exact.isfinite()) if free else accepted


def floor_of(output: torch.Tensor, elements: int, policy: Policy) -> float:
    """Returns the relative error that is always allowed, for inputs with ``elements`` elements together."""
    eps = torch.finfo(output.dtype).eps
    if output.dtype not in (torch.float32, torch.float64):
        return policy.half_eps * eps
    terms = elements / max(output.numel(), 1)
    return (policy.single_eps + policy.terms_eps * math.sqrt(terms)) * eps


def _bounds(
    original: torch.Tensor,
    truth: torch.Tensor,
    nearby: list[torch.Tensor],
    known: bool,
    policy: Policy,
    elements: int,
    elsewhere: tuple[torch.Tensor, torch.Tensor] | None,
) -> ErrorBounds:
    """Derives the bounds of one floating leaf.

    Corrects ``truth`` where float64's range changes the meaning.
    """
    rows, width = _rows(original).shape
    floor = floor_of(original, elements, policy)
    largest = torch.finfo(original.dtype).max
    scale = truth.new_zeros(rows, 1)
    errs = truth.new_zeros(rows, 1)
    sensitivity = torch.zeros(rows, width, dtype=torch.float32, device=truth.device) if nearby else None
    finite = True
    for start, stop in _chunks(_rows(truth), policy):
        o, t = _rows(original)[start:stop], _rows(truth)[start:stop]
        wide = o.double()
        if not (_all_finite(wide) and bool(t.abs().amax() <= largest)):
            # E.g. a mask filled with the dtype's lowest value.
            t.copy_(torch.where(wide.isfinite() & ~(t.abs() <= largest), wide, t))
            finite = False
        scale[start:stop] = _row_scale(torch.where(t.abs() <= largest, t, 0.0))
        unit = _unit(t, scale[start:stop], original.dtype, finite)
        errs[start:stop] = (_distance(wide, t) / unit).amax(1, keepdim=True)
        if elsewhere is not None:
            there, exactly = (_rows(leaf)[start:stop].double() for leaf in elsewhere)
            also = (_distance(there, exactly) / unit).amax(1, keepdim=True)
            errs[start:stop] = torch.maximum(errs[start:stop], also)
        if sensitivity is not None:
            steps = torch.stack([_distance(_rows(m)[start:stop], t) for m in nearby]).amax(0)
            # By chance a single element may not change; then its row's typical change counts.
            typical = _rms(steps, 1)
            sensitivity[start:stop] = torch.maximum(steps, typical) / unit * (1 + 1e-6)  # float32 rounds
    if not known:
        errs.fill_(floor)
    factor = policy.own_error_factor
    typical_row = errs.median() if rows else errs.sum()
    own = factor * torch.maximum(errs, typical_row)
    own = torch.where(errs > policy.noise, policy.noise_factor * errs, own)
    usual = (factor * typical_row).clamp_min(floor)
    outlying = 0
    for start, stop in _chunks(_rows(truth), policy):
        o, t = _rows(original)[start:stop], _rows(truth)[start:stop]
        unit = _unit(t, scale[start:stop], original.dtype, finite)
        bound = usual if sensitivity is None else torch.maximum(usual, sensitivity[start:stop])
        outlying += int((_distance(o.double(), t) / unit > bound).sum())
    outliers = min(int(factor * outlying), int(policy.outlier_share * original.numel()))
    worst = factor * float(errs.max()) if rows else 0.0
    # At a step, as in rounding, a few elements may be far off; then nothing follows from all together.
    together = () if outlying or not known else _together(original, truth, nearby, floor, policy)
    return ErrorBounds(scale, own, sensitivity, outliers, worst, finite, floor, together)


def _together(
    original: torch.Tensor,
    truth: torch.Tensor,
    nearby: list[torch.Tensor],
    floor: float,
    policy: Policy,
) -> tuple[Together, ...]:
    """Derives how far columns, and rows shorter than ``ROW``, may be off together."""
    width = truth.shape[-1] if truth.dim() else 1
    if not truth.numel():
        return ()
    peak = float(_finite(truth).abs().amax())
    dims = [0] if width > 1 and truth.numel() // width >= LEAST else []
    dims += [1] if LEAST // 2 <= width < ROW else []
    found = []
    for dim in dims if peak else ():
        size = _group_rms(truth, torch.zeros_like(truth), dim, peak, policy)
        own = _group_rms(truth, original, dim, peak, policy)
        own = own * torch.where(own > policy.noise * size, policy.noise_factor, policy.own_error_factor)
        allowed = torch.maximum(floor * size, own)
        for other in nearby:
            allowed = torch.maximum(allowed, _group_rms(truth, other, dim, peak, policy))
        least = torch.finfo(original.dtype).tiny * 2.0**26 / peak
        found.append(Together(dim, size, 2 * allowed.clamp_min(least), peak))
    return tuple(found)


def _group_rms(
    truth: torch.Tensor, value: torch.Tensor, dim: int, peak: float, policy: Policy
) -> torch.Tensor:
    """Returns the root mean square of the differences in each group, relative to ``peak``."""
    wide, other = (x.reshape(-1, x.shape[-1]) for x in (truth, value))
    parts = [
        (_distance(other[start:stop].double(), wide[start:stop]) / peak).square().sum(dim)
        for start, stop in _chunks(wide, policy)
    ]
    sums = torch.cat(parts) if dim else torch.stack(parts).sum(0)
    return (sums / wide.shape[dim]).sqrt()


def _off_together(
    got: torch.Tensor, truth: torch.Tensor, bounds: ErrorBounds, tolerance: float, policy: Policy
) -> Difference | None:
    """Returns the worst group whose errors are larger than they may be, if there is one."""
    for group in bounds.together:
        errors = _group_rms(truth, got, group.dim, group.peak, policy)
        allowed = torch.maximum(group.allowed, tolerance * group.size)
        worst = int((errors / allowed).argmax())
        if errors[worst] > allowed[worst]:
            size = float(group.size[worst]) or 1.0
            what = f"in {'row' if group.dim else 'column'} {worst} as a whole, whose values are about {size * group.peak:.3g}"
            return Difference(False, float(errors[worst]) / size, float(allowed[worst]) / size, what)
    return None


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if _all_finite(tensor) else tensor.nan_to_num(0.0, 0.0, 0.0)


def _rms(values: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns root mean squares along ``dim``, which is kept; squares do not overflow."""
    peak = values.abs().amax(dim, keepdim=True).clamp_min(1e-300)
    return peak * (values / peak).square().mean(dim, keepdim=True).sqrt()


def _row_scale(rows: torch.Tensor) -> torch.Tensor:
    """Returns the root mean square of each row, in which elements as large as the largest count as at most 1.

    So a fill value such as -1e9 does not hide the other elements. Where all others are tails of a
    saturated function, they are compared on a scale of 1, because they were computed from numbers about
    1.
    """
    size = rows.abs()
    rest = torch.where(size < 0.999 * size.amax(1, keepdim=True), size, 0.0)
    return torch.minimum(_rms(size, 1), _rms(rest, 1).clamp_min(1.0))


def _distance(value: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Returns the absolute difference where both are finite; 0 elsewhere."""
    distance = (value - truth).abs_()
    return distance if _all_finite(distance) else distance.nan_to_num_(0.0, 0.0, 0.0)


def _all_finite(tensor: torch.Tensor) -> bool:
    """Whether all elements are finite.

    Their sum is not finite if one is not, and is faster than testing each.
    """
    return bool(tensor.sum().isfinite())


def _unit(truth: torch.Tensor, row: torch.Tensor, dtype: torch.dtype, finite: bool) -> torch.Tensor:
    """Returns what errors are relative to: an element's magnitude plus its row's, or a tiny number."""
    info = torch.finfo(dtype)
    # GPUs and fast exponentials flush subnormal float32 to zero. float16's subnormals are ordinary numbers.
    least = info.tiny if dtype == torch.float16 else info.tiny * 2.0**26
    size = truth.abs()
    if not finite:
        size = size.nan_to_num_(0.0, 0.0, 0.0)
    return size.add_(row).clamp_min_(least)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor as ``(rows, width)``, with at least ``ROW`` elements a row if it has so many."""
    width, dims = 1, list(tensor.shape)
    while dims and width < ROW:
        width *= dims.pop()
    return tensor.reshape(math.prod(dims), width)


def _chunks(matrix: torch.Tensor, policy: Policy) -> Iterator[tuple[int, int]]:
    """Yields ranges of a matrix's rows of bounded size, so that temporary tensors stay small."""
    rows, width = matrix.shape
    step = max(1, policy.chunk_elements // max(width, 1))
    for start in range(0, rows if width else 0, step):
        yield start, min(start + step, rows)


def _where(place: int, got: torch.Tensor, expected: torch.Tensor, start: int) -> str:
    """Describes one element, given by its position in the flattened tensors."""
    index = [int(i) for i in torch.unravel_index(torch.tensor(place), got.shape)]
    index = [start + index[0], *index[1:]] if index else index
    return (
        f"at {index}: expected {expected.reshape(-1)[place].item():.9g}, "
        f"got {got.reshape(-1)[place].item():.9g}"
    )

"""Derives how large an error of a floating output may be: from the errors that honest evaluations of the original make.

``docs/explanation/numerics.md`` explains the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelllm_judge.core.eight_bits import has_eight_bits, steps
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.rows import Errors, Ruler, all_finite, as_rows, chunks, least_unit, ruler_of

ROUNDING = "rounding"
OWN = "the original's own error"
SENSITIVITY = "how far its inputs' last digits move it"
TOLERANCE = "the marker's tolerance"
TOGETHER = "how far a row or column may be off as a whole"
PLACES = "places of NaN and infinities"
EQUALITY = "equality"
STEPS = "how many elements rounding may put a step off"
"""The bounds, as reasons name them."""


@dataclass(frozen=True)
class ErrorBounds:
    """How far one floating output may be from the float64 one."""

    ruler: Ruler
    worst: torch.Tensor
    """Largest error allowed in each row because of the original's, ``(rows, 1)``."""
    sensitivity: torch.Tensor | None
    """Change of each element of the exact output under small perturbations of the inputs, ``(rows, width)``, float32."""
    floor: float
    """Error that is always allowed, in every element."""
    usual: torch.Tensor
    """Largest error of each row in most evaluations, times as much, or by perturbations, ``(rows, 1)``. Rows that err more have
    a bound of their own; nothing follows from them for columns, or for all rows together."""
    rows: torch.Tensor
    """Root mean square of each row's errors, the largest of honest evaluations, ``(rows, 1)``. See ``Policy.together``…"""
    typical: torch.Tensor
    """…and in most of them."""
    groups: tuple[torch.Tensor, ...]
    """Root mean square allowed in each column and short row, see ``Errors``."""
    exceptions: int
    """Other rows that may err more, because rounding decides in them…"""
    farthest: tuple[float, float]
    """…and their largest allowed error, and root mean square of errors."""

    def which(self, row: int, allowed: float, floor: float, stated: bool) -> str:
        """Says which bound allows an element so much in its row; ``floor`` is a tolerance if one is ``stated``."""
        if allowed <= floor:
            return TOLERANCE if stated else ROUNDING
        return OWN if allowed <= float(self.worst[row]) else SENSITIVITY


@dataclass(frozen=True)
class StepBounds:
    """How far an output in a float of 8 bits may be off: in some elements by one step of the format.

    Its rounding is what the module means, not an error that it makes, so other codes are wrong, unless rounding decides.
    """

    others: tuple[torch.Tensor, ...]
    """Other outputs that are right."""
    flips: int
    """In how many elements it may be one step off all of them."""


def floor_of(output: torch.Tensor, elements: int, policy: Policy, terms: int = 0) -> float:
    """Returns the relative error that is always allowed, for inputs with ``elements`` elements together.

    ``terms`` are known to be added up in an element.
    """
    eps = torch.finfo(output.dtype).eps
    if is_half(output.dtype):
        return policy.half_eps * eps
    most = max(terms, min(elements / max(output.numel(), 1), policy.most_terms))
    return (policy.single_eps + math.sqrt(most)) * eps


def is_half(dtype: torch.dtype) -> bool:
    """Whether a dtype has half precision."""
    return dtype in (torch.float16, torch.bfloat16)


class Derivation:
    """Derives the bounds of one leaf from evaluations, of which each is measured as it comes and not kept."""

    def __init__(
        self, original: torch.Tensor, exact: torch.Tensor | None, policy: Policy, *, free: bool, steady: bool
    ) -> None:
        """Starts with the original's evaluation. For the arguments see ``numerics.expect``."""
        self._policy = policy
        self._original = original
        self._known = exact is not None
        self._moves: list[Errors] = []
        self._errors: list[Errors] = []
        self._elsewhere: list[Errors] = []
        self._sensitivity: torch.Tensor | None = None
        self._values: list[torch.Tensor] = []
        """What a leaf of integers, or of 8 bits, may be, too."""
        self._eight_bits = has_eight_bits(original.dtype)
        self._most_flips = 0
        """In how many elements rounding took another value of 8 bits, in one honest evaluation."""
        self._measured = original.is_floating_point() and not self._eight_bits
        if not self._measured:
            # One that changes with the inputs' last digits has no single right value. Which of several equal inputs an index
            # names stays the original's choice: perturbations would choose at random.
            self._values = [] if exact is None else [exact.to(original.dtype)]
            self.truth = original
            return
        self.truth = original.double() if exact is None else exact.contiguous()
        if free and not all_finite(original):
            self.truth = torch.where(original.isfinite(), self.truth, original.double())
        self._ruler = ruler_of(original, self.truth, policy)
        self._steady = steady and torch.equal(original.double(), self.truth)
        if self._known:
            self._errors = [self._ruler.errors(original)]
            if is_half(original.dtype):
                # One rounding, also of numbers that need none.
                self._moves += [
                    self._ruler.errors((self.truth * factor).to(original.dtype).double() / factor)
                    for factor in (4 / 3, 8 / 7)
                ]

    def move(self, near: torch.Tensor) -> None:
        """Adds the exact leaf for slightly perturbed inputs."""
        if not self._measured:
            self._values.append(near.to(self._original.dtype))
        elif self._known and not self._steady:
            if self._sensitivity is None:
                shape = as_rows(self.truth).shape
                self._sensitivity = torch.zeros(shape, dtype=torch.float32, device=self.truth.device)
            self._moves.append(self._ruler.errors(near, into=self._sensitivity))

    def add(self, leaf: torch.Tensor, exact: torch.Tensor | None) -> None:
        """Adds what an honest evaluation gives, at other inputs if it comes with the exact leaf there."""
        there = self._errors if exact is None else self._elsewhere
        if self._eight_bits:
            right = self._values[:1] if exact is None else [exact.to(leaf.dtype)]
            flips = (int((steps(leaf) != steps(each)).sum()) for each in right)
            self._most_flips = max(self._most_flips, *flips, 0)
        elif self._original.is_floating_point() and self._known and not (exact is not None and self._steady):
            there.append(self._ruler.errors(leaf, exact))

    def bounds(
        self, elements: int, terms: int, usual: float | None
    ) -> ErrorBounds | StepBounds | tuple[torch.Tensor, ...]:
        """Returns the bounds; for integers and booleans the other values that are right."""
        if self._eight_bits:
            chance = self._policy.flipped * self._original.numel()
            return StepBounds(tuple(self._values), int(self._policy.own_factor * self._most_flips + chance))
        if not self._measured:
            return tuple(value for value in self._values if not torch.equal(value, self._original))
        floor = floor_of(self._original, elements, self._policy, terms)
        found = self._errors, self._elsewhere, self._moves
        return derive_bounds(self._ruler, *found, self._sensitivity, floor, usual)


def derive_bounds(
    ruler: Ruler,
    errors: Sequence[Errors],
    elsewhere: Sequence[Errors],
    moves: Sequence[Errors],
    sensitivity: torch.Tensor | None,
    floor: float,
    usual: float | None,
) -> ErrorBounds:
    """Derives the bounds of one leaf.

    Args:
        errors: of honest evaluations. None, where float64 is unavailable.
        elsewhere: the same at inputs with other last digits.
        moves: how far small perturbations of the inputs move it.
        sensitivity: the same for each element.
        usual: the output's largest magnitude where it is not stressed; None: what it is here.
    """
    policy, truth, scale = ruler.policy, ruler.truth, ruler.scale
    nothing = torch.full_like(scale, 0.0 if errors else floor)
    # What float64 rounds to 0 in a whole row or column was computed from numbers as large as the output usually is.
    digits = torch.finfo(torch.float64).eps * min(usual or ruler.peak or 1.0, 1.0)
    least = least_unit(ruler.dtype)
    if bool((scale == 0).any()):
        parts = [as_rows(truth)[start:stop] for start, stop in chunks(as_rows(truth), policy)]
        zeros = torch.cat([(part == 0).all(1, keepdim=True) for part in parts])  # what overflows has no scale
        nothing = torch.where(zeros, nothing.clamp_min(digits / least), nothing)
    every = (*errors, *elsewhere)
    worst = torch.stack([e.worst for e in every] or [nothing])
    spreads = torch.stack([e.rows for e in every] or [nothing])
    most = torch.maximum(nothing, worst.amax(0))
    moved = torch.stack([nothing, *(e.worst for e in moves)]).amax(0)
    least_spread = torch.stack([nothing, *(e.rows for e in moves)]).amax(0)
    floors = 0.0 if errors and is_half(ruler.dtype) else floor
    least_spread = least_spread.clamp_min(floors)
    groups = []
    for number, size in enumerate(ruler.sizes):
        own = torch.stack([floors * size, *(e.groups[number] for e in (*every, *moves))]).amax(0)
        own = torch.where(size > 0, own, own.clamp_min(digits / ruler.peak)).clamp_min(least / ruler.peak)
        groups.append(policy.together(truth.numel() // max(len(size), 1)) * own)
    return ErrorBounds(
        ruler,
        policy.own_factor * most,
        sensitivity,
        floor,
        torch.maximum(policy.own_factor * torch.maximum(nothing, _usual(worst, len(errors))), moved),
        torch.maximum(least_spread, spreads.amax(0)),
        torch.maximum(least_spread, _usual(spreads, len(errors))),
        tuple(groups),
        *_exceptions(worst, spreads, floor, policy),
    )


def _usual(errors: torch.Tensor, here: int) -> torch.Tensor:
    """Returns the larger of the errors of so many evaluations at the inputs themselves, and of the median one elsewhere."""
    parts = errors[: here or 1].amax(0), errors[here:].median(0).values if len(errors) > here else errors[0]
    return torch.maximum(*parts)


def _exceptions(
    worst: torch.Tensor, spreads: torch.Tensor, floor: float, policy: Policy
) -> tuple[int, tuple[float, float]]:
    """Returns in how many rows an evaluation may err more than the others allow, and how far off it may be there.

    In as many rows as one of many honest evaluations does, times the factor: at steps, and where a softmax takes one key or
    another, rounding decides, otherwise in each of them.
    """
    if len(worst) <= policy.honest_runs or not worst.shape[1]:
        return 0, (0.0, 0.0)
    first, second = worst.topk(2, 0).values
    alone = (worst == first) & (first > (policy.own_factor * second).clamp_min(floor))
    figures = [alone.sum((1, 2)).amax().double(), (worst * alone).amax(), (spreads * alone).amax()]
    count, farthest, together = (policy.own_factor * torch.stack(figures)).tolist()
    return int(count), (farthest, together)

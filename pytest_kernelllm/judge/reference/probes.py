"""Probes: the sizes, seeds and kinds of inputs at which a case is tried."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from pytest_kernelllm.core.records import Case, Domain, TensorSpec
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference.stress import TWIN


@dataclass(frozen=True)
class Probe:
    """One trial of a case."""

    case: str
    sizes: tuple[tuple[str, int], ...]
    seed: int
    stress: str = ""
    """What is done to real-valued inputs: a name of ``stress.TRANSFORMS`` or ``stress.PLANTED``, or ``stress.TWIN``."""
    nudged: tuple[str, ...] = ()
    """Float attributes set to another value, because the candidate claims to read them."""
    weights: int | None = None
    """Seed of the module's weights; None: ``seed``. Probes that share weights are prepared faster."""
    rule: str = "values"
    """The rule (``rules.RULES``) that wrong outputs at this probe break."""

    def describe(self) -> str:
        """``default-float32, batch=7, seq=13, seed 3, ×0.01 inputs``."""
        parts = [self.case, *(f"{k}={v}" for k, v in self.sizes), f"seed {self.seed}"]
        if self.stress:
            parts.append(f"{self.stress} inputs" if self.rule == "stress" else f"inputs with {self.stress}")
        if self.nudged:
            parts.append(f"other {', '.join(self.nudged)}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Limits:
    """How large probes may be."""

    elements: int
    """Of the largest input."""
    longest: int
    """Of one dimension, at the corners of a domain."""


def elements(domain: Domain, sizes: Mapping[str, int]) -> int:
    """Elements of the largest input at these sizes."""
    specs = (spec for spec in domain.inputs.values() if isinstance(spec, TensorSpec))
    return max((math.prod(_shape(spec, sizes)) for spec in specs), default=1)


def covers(support: Domain, case: Case) -> Mapping[str, tuple[int, int]] | str:
    """Which sizes of a case a kernel's domain covers.

    Returns:
        Inclusive range of each of the case's named dimensions; or, where the domain does not cover the case, why.
    """
    want = case.domain
    if support.training != want.training:
        return f"made for training={support.training}"
    if want.grad and not support.grad:
        return "computes no gradients"
    if set(support.inputs) != set(want.inputs):
        return f"takes the arguments {sorted(support.inputs)}, the target {sorted(want.inputs)}"
    for name, value in want.attributes.items():
        if name not in support.attributes:
            # A float that is left open is a claim that the kernel reads it; one in a tuple cannot be put to the test.
            if not isinstance(value, float) or "[" in name:
                return f"does not say which `{name}` it was made for"
        elif support.attributes[name] != value:
            return f"made for {name}={support.attributes[name]!r}, not {value!r}"
    ranges = dict(want.dims)
    for name, spec in want.inputs.items():
        have = support.inputs[name]
        if not isinstance(spec, TensorSpec) or not isinstance(have, TensorSpec):
            if have != spec:
                return f"made for {name}={have!r}, not {spec!r}"
            continue
        if have.dtype != spec.dtype or len(have.shape) != len(spec.shape):
            return f"made for `{name}` of {have.dtype} with {len(have.shape)} dimensions"
        for ours, theirs in zip(spec.shape, have.shape, strict=True):
            low, high = support.dims[theirs] if isinstance(theirs, str) else (theirs, theirs)
            if isinstance(ours, int):
                if not low <= ours <= high:
                    return f"made for another size of `{name}`: {theirs}, not {ours}"
            else:
                ranges[ours] = (max(ranges[ours][0], low), min(ranges[ours][1], high))
                if ranges[ours][0] > ranges[ours][1]:
                    return f"covers no size of `{ours}` that the target declares"
    return ranges


def plan(
    case: Case,
    ranges: Mapping[str, tuple[int, int]],
    nudged: tuple[str, ...],
    policy: Policy,
    limits: Limits,
    seed: int,
    nonfinite: bool = True,
) -> list[Probe]:
    """The probes of one case: several seeds at its main size, stress at a small one, and the corners of its domain.

    The last seed's has a twin right behind it: the same inputs but for a few values.

    Args:
        case: what is tried.
        ranges: of the named dimensions, as ``covers`` returned them.
        nudged: float attributes that the candidate claims to read.
        policy: how many seeds, which kinds of stress.
        limits: how large inputs may be, as far as free dimensions allow.
        seed: the judge's secret first seed.
        nonfinite: whether NaN and infinities in the inputs must come out as in the original.
    """
    main = _fit(case, ranges, limits.elements)
    small, stresses, planted = _under_stress(case, ranges, policy, limits)

    def probe(rule: str, sizes: Mapping[str, int], number: int, stress: str = "") -> Probe:
        other = nudged if rule == "attributes" else ()
        weights = seed + min(number, policy.seeds - 1)
        return Probe(case.name, tuple(sizes.items()), seed + number, stress, other, weights, rule)

    probes = [probe("values", main, i) for i in range(policy.seeds)]
    probes.append(probe("twin", main, policy.seeds - 1, TWIN))
    if nudged:
        probes.append(probe("attributes", main, 20))
    corners = _corners(case, ranges, main, limits, random.Random(seed))
    probes += [probe("sizes", sizes, 30 + i) for i, sizes in enumerate(corners)]
    probes += [probe("stress", small, 50 + i, name) for i, name in enumerate(stresses)]
    if nonfinite:
        probes += [probe("nonfinite", small, 80 + i, name) for i, name in enumerate(planted)]
    return probes


def _under_stress(
    case: Case, ranges: Mapping[str, tuple[int, int]], policy: Policy, limits: Limits
) -> tuple[dict[str, int], tuple[str, ...], tuple[str, ...]]:
    """Sizes under stress, kinds of stress, and values to plant: few of them where a probe is dear."""
    quick = limits.elements > policy.cpu_elements  # not in Triton's interpreter
    main = _fit(case, ranges, limits.elements)
    small = _fit(case, ranges, policy.gpu_stress_elements if quick else policy.cpu_stress_elements)
    # A dimension of one would hide what happens along it, and rows of different kinds need rows.
    sizes = {k: max(v, min(main[k], 2)) for k, v in small.items()}
    if _rows(case.domain, sizes) < policy.stress_rows or elements(case.domain, sizes) > limits.elements:
        sizes = main
    if quick and elements(case.domain, sizes) <= policy.gpu_elements:
        return sizes, policy.gpu_stresses, policy.gpu_planted
    return sizes, policy.cpu_stresses, policy.cpu_planted


def _corners(
    case: Case,
    ranges: Mapping[str, tuple[int, int]],
    main: dict[str, int],
    limits: Limits,
    dice: random.Random,
) -> list[dict[str, int]]:
    """Secret prime sizes, all dimensions at their low end, and each at its high end; without what is the main size."""
    odd = {k: _prime(ranges[k][0], v, dice) for k, v in main.items()}
    low = {k: ranges[k][0] for k in main}
    corners = [odd, low]
    for name in main:
        high = {**low, name: max(low[name], min(ranges[name][1], limits.longest))}
        if elements(case.domain, high) <= limits.elements:
            corners.append(high)
    return [corner for i, corner in enumerate(corners) if corner not in [main, *corners[:i]]]


def _rows(domain: Domain, sizes: Mapping[str, int]) -> int:
    """Rows of the largest input: its elements but for the last dimension."""
    shapes = [_shape(spec, sizes) for spec in domain.inputs.values() if isinstance(spec, TensorSpec)]
    largest = max(shapes, key=math.prod, default=())
    return math.prod(largest[:-1])


def _shape(spec: TensorSpec, sizes: Mapping[str, int]) -> list[int]:
    return [sizes[d] if isinstance(d, str) else d for d in spec.shape]


def _fit(case: Case, ranges: Mapping[str, tuple[int, int]], budget: int) -> dict[str, int]:
    """The case's own sizes, halved where they are largest until they fit the budget."""
    sizes = {k: min(max(v, ranges[k][0]), ranges[k][1]) for k, v in case.sizes.items()}
    while elements(case.domain, sizes) > budget:
        shrinkable = [k for k in sizes if sizes[k] > ranges[k][0] and sizes[k] > 1]
        if not shrinkable:
            break
        largest = max(shrinkable, key=lambda k: sizes[k])
        sizes[largest] = max(sizes[largest] // 2, ranges[largest][0])
    return sizes


def smaller(
    case: Case, ranges: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Half as many elements as at ``sizes``, a quarter, and so on, as far as ``ranges`` reach."""
    now, budget = dict(sizes), elements(case.domain, sizes)
    while True:
        budget //= 2
        fitted = _fit(case, ranges, budget)
        if fitted == now:
            return
        yield fitted
        now = fitted


def _prime(low: int, value: int, dice: random.Random) -> int:
    """Some prime in ``[low, value)``; ``low`` where there is none.

    One between the next lower power of two and ``value`` where there is one: below that other block sizes would do.
    """
    least = max(low, 2)
    if least >= value:
        return low
    power = 1 << (value - 1).bit_length() - 1
    start = dice.randrange(max(least, power), value)
    for candidate in chain(range(start, value), range(start - 1, least - 1, -1)):
        if all(candidate % d for d in range(2, math.isqrt(candidate) + 1)):
            return candidate
    return low

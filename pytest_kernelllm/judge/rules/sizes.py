"""The rule ``sizes``: outputs are right at the ends of the declared sizes, at primes, and where the candidate compares sizes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, combinations, product

from pytest_kernelllm.core.domains import INTERPRETED_ELEMENTS
from pytest_kernelllm.core.records import Domain, TensorSpec
from pytest_kernelllm.judge.reference.probes import Probe, elements, innermost
from pytest_kernelllm.judge.rules.rule import SupportedCase
from pytest_kernelllm.judge.rules.values import OutputRule

SEED = 30
"""Added to the first seed, so that inputs differ from those of other rules."""

COMPARED_SEED = 140
"""Added to the first seed, for sizes next to those with which the candidate compares."""

MOST_COMPARED = 32
"""Such sizes of one case that are tried; of more, randomly chosen ones."""

MOST_NUMBERS = 256
"""Numbers of one candidate for which such sizes are sought; of more, randomly chosen ones."""


@dataclass(frozen=True)
class Sizes(OutputRule):
    """Outputs are right at random prime sizes, at all low ends of the ranges, at all high ends, and at each high end.

    A candidate that compares sizes with a number may go on in another way from there on, so both sides are tried.
    """

    name = "sizes"
    says = (
        "outputs are right at the corners of the declared sizes, at primes, and on both sides of each number with which the "
        "candidate compares"
    )

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe for each of these sizes that are not the main ones."""
        at_corners = corners(supported)
        for number, sizes in enumerate(at_corners):
            yield supported.probe(self.name, sizes, SEED + number)
        rng = random.Random(supported.seed)
        beside = [s for s in beside_compared(supported, rng) if s not in (*at_corners, supported.main)]
        for number, sizes in enumerate(rng.sample(beside, min(MOST_COMPARED, len(beside)))):
            yield supported.probe(self.name, sizes, COMPARED_SEED + number)


def corners(supported: SupportedCase) -> list[dict[str, int]]:
    """Returns the sizes to try besides the main ones, without those that exceed the limits.

    What ships without a GPU ends at ``core.domains.interpretable``, so that all high ends together can be tried.
    Rows are tried at one more than a power of two as well, where blocks of such a size just do not suffice.
    """
    domain = supported.case.domain
    rng = random.Random(supported.seed)
    odd = {k: secret_prime(supported.ranges[k][0], v, rng) for k, v in supported.main.items()}
    low = {k: supported.ranges[k][0] for k in supported.main}
    top = {k: supported.ranges[k][1] for k in supported.main}
    whole = elements(domain, top) <= max(supported.limits.elements, INTERPRETED_ELEMENTS)
    found = [odd, low, top] if whole else [odd, low]
    rows = innermost(domain)
    for name in supported.main:
        if whole and name not in rows:
            continue  # it is as large at the top
        longest = supported.limits.row if name in rows else top[name]
        high = {**low, name: max(low[name], min(top[name], longest))}
        while elements(domain, high) > supported.limits.elements and high[name] > low[name]:
            high[name] = max(low[name], high[name] // 2)
        if elements(domain, high) <= supported.limits.elements:
            found.append(high)
            above = (1 << (high[name] - 1).bit_length() - 1) + 1 if high[name] > 2 else 0
            if name in rows and low[name] <= above < high[name]:
                found.append({**low, name: above})
    return [sizes for i, sizes in enumerate(found) if sizes not in [supported.main, *found[:i]]]


def beside_compared(supported: SupportedCase, rng: random.Random) -> list[dict[str, int]]:
    """Returns sizes at which something that the candidate may compare is just below a number, equal to it, or above.

    That is a dimension, or the product of neighbouring ones, as in ``x.numel()`` or the number of rows. One dimension is chosen
    for it, with the others at their low ends and at the main sizes.
    """
    domain, ranges = supported.case.domain, supported.ranges
    low = {name: ranges[name][0] for name in supported.main}
    numbers = rng.sample(supported.compared, min(MOST_NUMBERS, len(supported.compared)))
    found: dict[tuple[int, ...], dict[str, int]] = {}
    for others, name in product((low, supported.main), supported.main):
        for count, number in product(counts(domain, name, others), numbers):
            for size in {(number - 1) // count, number // count, number // count + 1}:
                sizes = {**others, name: size}
                inside = ranges[name][0] <= size <= ranges[name][1]
                if inside and elements(domain, sizes) <= supported.limits.elements:
                    found[tuple(sizes.values())] = sizes
    return list(found.values())


def counts(domain: Domain, name: str, others: Mapping[str, int]) -> set[int]:
    """Returns by how much the products of neighbouring dimensions grow with one of them, for given sizes of the others."""
    found = set()
    for spec in domain.inputs.values():
        shape = spec.shape if isinstance(spec, TensorSpec) else ()
        for start, end in combinations(range(len(shape) + 1), 2):
            part = shape[start:end]
            if part.count(name) == 1:
                found.add(math.prod(others.get(n, 1) if isinstance(n, str) else n for n in part if n != name))
    return found - {0}


def secret_prime(low: int, value: int, rng: random.Random) -> int:
    """Returns a random prime in ``[low, value)``; ``low`` if there is none.

    Prefers primes above the next lower power of two, because kernels use other block sizes below it.
    """
    least = max(low, 2)
    if least >= value:
        return low
    power = 1 << (value - 1).bit_length() - 1
    start = rng.randrange(max(least, power), value)
    for candidate in chain(range(start, value), range(start - 1, least - 1, -1)):
        if all(candidate % d for d in range(2, math.isqrt(candidate) + 1)):
            return candidate
    return low

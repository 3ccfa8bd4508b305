"""The rule ``sizes``: outputs are right at the corners of the declared sizes and at primes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from pytest_kernelllm.judge.reference.probes import Probe, elements
from pytest_kernelllm.judge.rules.rule import Ask
from pytest_kernelllm.judge.rules.values import OutputRule

SEED = 30
"""Added to the first seed, to draw other inputs than the other rules do."""


@dataclass(frozen=True)
class Sizes(OutputRule):
    """Outputs are right at secret prime sizes, with all dimensions at their low end, and each at its high end."""

    name = "sizes"
    says = "outputs are right at the corners of the declared sizes and at primes"

    def probes(self, ask: Ask) -> Iterable[Probe]:
        """One probe a corner of the domain, without what is the main size."""
        for number, sizes in enumerate(corners(ask)):
            yield ask.probe(self.name, sizes, SEED + number)


def corners(ask: Ask) -> list[dict[str, int]]:
    """The sizes to try beside the main ones, as far as they fit the limits."""
    dice = random.Random(ask.seed)
    odd = {k: secret_prime(ask.ranges[k][0], v, dice) for k, v in ask.main.items()}
    low = {k: ask.ranges[k][0] for k in ask.main}
    found = [odd, low]
    for name in ask.main:
        high = {**low, name: max(low[name], min(ask.ranges[name][1], ask.limits.longest))}
        if elements(ask.case.domain, high) <= ask.limits.elements:
            found.append(high)
    return [sizes for i, sizes in enumerate(found) if sizes not in [ask.main, *found[:i]]]


def secret_prime(low: int, value: int, dice: random.Random) -> int:
    """Some prime in ``[low, value)``; ``low`` where there is none.

    One between the next lower power of two and ``value`` where there is one: below that, kernels use other block sizes.
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

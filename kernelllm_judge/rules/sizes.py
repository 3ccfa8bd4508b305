"""The rule ``sizes``: outputs are right at the ends of the declared sizes, at primes, and where the candidate compares sizes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from kernelllm_judge.core.domains import INTERPRETED_ELEMENTS
from kernelllm_judge.coverage.decisions import RECORD
from kernelllm_judge.findings import Findings
from kernelllm_judge.rules.outputs import OutputRule
from kernelllm_judge.rules.rule import SupportedCase
from kernelllm_judge.truth.probes import Probe, elements, innermost


@dataclass(frozen=True)
class Sizes(OutputRule):
    """Outputs are right at random prime sizes, at all low ends of the ranges, at all high ends, and at each high end."""

    name = "sizes"
    says = "outputs are right at the corners of the declared sizes, and at primes"

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe for each of these sizes that are not the main ones."""
        for number, sizes in enumerate(corners(supported)):
            yield supported.probe(self.name, sizes, self.seed + number)


@dataclass(frozen=True)
class Decisions(OutputRule):
    """See ``deciding`` and ``directing``; the judge asks at the end, when the probes of all other rules have run."""

    name = "decisions"
    says = (
        "every decision in its Python code fell either way in a call whose outputs were right, or the original runs in its place; "
        "and so did every decision in its kernels, in Triton's interpreter"
    )

    def check_source(self, source: str, findings: Findings) -> None:
        """Refuses a candidate that names what reports outcomes."""
        findings.require(self.name, "leaves reports to the judge", RECORD not in source, f"it names {RECORD}")


@dataclass(frozen=True)
class Operations(OutputRule):
    """See ``mutants``; the judge asks after all decisions."""

    name = "operations"
    says = "every operation on floats in its kernels matters: with another result, an output or a gradient is wrong at some probe"


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

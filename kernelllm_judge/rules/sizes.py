"""The rule ``sizes``: outputs are right at the ends of the declared sizes, at primes, and where the candidate compares sizes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, permutations, product, zip_longest

from kernelllm_judge.core.domains import INTERPRETED_ELEMENTS
from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_judge.rules.outputs import OutputRule
from kernelllm_judge.rules.rule import SupportedCase
from kernelllm_judge.truth.probes import Probe, elements, innermost

MOST_COMPARED = 64
"""Such sizes of one case that are tried, at most; of more, randomly chosen ones."""

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
    """The same, for sizes next to those with which the candidate compares."""

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe for each of these sizes that are not the main ones."""
        at_corners = corners(supported)
        for number, sizes in enumerate(at_corners):
            yield supported.probe(self.name, sizes, self.seed + number)
        known = (*at_corners, supported.main)
        beside = [sizes for sizes in beside_compared(supported) if sizes not in known]
        for number, sizes in enumerate(beside[:MOST_COMPARED]):
            yield supported.probe(self.name, sizes, self.seed + 512 + number)


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


def beside_compared(supported: SupportedCase) -> list[dict[str, int]]:
    """Returns sizes at which something that the candidate may compare is just below a number, equal to it, or above.

    Some for each of the numbers come first, in secret order.
    """
    rng = random.Random(supported.seed)
    numbers = rng.sample(supported.compared, min(MOST_NUMBERS, len(supported.compared)))
    groups = []
    for number in numbers:
        sizes = [
            *_with_one_size(supported, numbers, number, rng),
            *_with_two_sizes(supported, numbers, number, rng),
        ]
        fitting = [each for each in sizes if _is_inside(supported, each)]
        groups.append(rng.sample(fitting, len(fitting)))
    in_turn = (sizes for turn in zip_longest(*groups) for sizes in turn if sizes is not None)
    return list({tuple(sizes.values()): sizes for sizes in in_turn}.values())


def _with_one_size(
    supported: SupportedCase, numbers: Sequence[int], number: int, rng: random.Random
) -> Iterator[dict[str, int]]:
    """Yields sizes of which one dimension is chosen for a number, with the others at their low ends and at the main sizes.

    The dimension itself, or the product of neighbouring ones, as in ``x.numel()`` or the number of rows, is next to the number;
    or the dimension is a multiple of it, at the end of its range or next to another number, or next to their product.
    """
    domain, ranges = supported.case.domain, supported.ranges
    low = {name: ranges[name][0] for name in supported.main}
    second = rng.sample(numbers, min(3, len(numbers)))
    multiples = [bound - bound % number + step for bound in second for step in (0, number)]
    products = [number * factor + step for factor in second for step in (0, 1)]
    for others, name in product((low, supported.main), supported.main):
        for count, power in growth(domain, name, others):
            root = number // count if power == 1 else round((number / count) ** (1 / power))
            yield from ({**others, name: size} for size in (root - 1, root, root + 1))
        ends = (most - most % number for most in (ranges[name][1], supported.main[name]))
        yield from ({**others, name: size} for size in (*ends, *multiples, *products))


def _with_two_sizes(
    supported: SupportedCase, numbers: Sequence[int], number: int, rng: random.Random
) -> Iterator[dict[str, int]]:
    """Yields sizes of which one dimension is next to a number and another one to another: a candidate may ask for both."""
    others = [each for each in numbers if each != number] or [number]
    places = [*product((-1, 0, 1), repeat=2)]
    for name, other in permutations(supported.main, 2):
        for second in rng.sample(others, min(2, len(others))):
            for here, there in rng.sample(places, 4):
                yield {**supported.main, name: number + here, other: second + there}


def _is_inside(supported: SupportedCase, sizes: Mapping[str, int]) -> bool:
    """Whether the candidate supports these sizes, and they are not too large to be tried."""
    ranges = supported.ranges
    inside = all(ranges[name][0] <= size <= ranges[name][1] for name, size in sizes.items())
    return inside and elements(supported.case.domain, sizes) <= supported.limits.elements


def growth(domain: Domain, name: str, others: Mapping[str, int]) -> set[tuple[int, int]]:
    """Returns how products of neighbouring dimensions grow with one of them: the factor before it, and its power."""
    found = set()
    for spec in domain.inputs.values():
        shape = spec.shape if isinstance(spec, TensorSpec) else ()
        for start, end in combinations(range(len(shape) + 1), 2):
            part = shape[start:end]
            factors = [others.get(n, 1) if isinstance(n, str) else n for n in part if n != name]
            if name in part and (count := math.prod(factors)):
                found.add((count, part.count(name)))
    return found


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

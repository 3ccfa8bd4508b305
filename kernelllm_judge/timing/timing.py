"""Times implementations in interleaved rounds, and computes speedups with intervals."""

from __future__ import annotations

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

from kernelllm_judge.core.records import Ratio, Sample, Spread
from kernelllm_judge.policy import Policy
from kernelllm_judge.shared.clock import GpuClock

USUAL_FLUSHES = 12
"""Most overwrites of L2 before a call, unless its cold times show that launching it takes longer than they do…"""

MOST_FLUSHES = 48
"""…and then at most these rounds."""

HIDDEN = 0.95
"""Share of its time that a call takes behind twice as many overwrites, at most, if fewer do not hide its launches."""

HIDING_CALLS = 5
"""Calls whose median is such a time."""

CALLS_US = 10_000
"""µs that the calls of one implementation in a round take, warm or cold, but for a call that takes longer."""

ROUNDS_US = 2_000_000
"""µs that all rounds take…"""

FEWEST_ROUNDS = 6
"""…unless there are at most these rounds."""

SETTLED = 0.5
"""Share of the variation between runs that the rounds' own part of an interval may be when no more rounds are made: they would
narrow the interval by less than a tenth of its width."""

WIDE = 0.1
"""Half the width of a speedup's interval, by the rounds alone and as a logarithm, from which on something disturbs calls…"""

TRIES = 3
"""…so that all rounds are made again, until there are as many tries."""

CLOCK_TRIES = 4
"""How often a call is timed by the judge's clock behind as many overwrites of L2, at most…"""

CLOCK_ATTEMPTS = 4
"""…behind each of so many numbers of overwrites."""

CLOCK_US = 8_000
"""µs that a loop takes in the first attempt, and twice as many in each further one."""


class Implementation(Protocol):
    """One of the implementations that are timed against each other: a candidate or a baseline."""

    name: str

    def cold(self, flushes: int) -> float:
        """Times one call behind ``flushes`` overwrites of L2, in µs."""

    def renew(self) -> None:
        """Does what must come before a loop and is no part of it, such as writing fresh values."""

    def loop(self, count: int, flushes: int = 0) -> list[float]:
        """Times ``count`` calls in a row, in µs, see ``GpuClock.many``."""


@dataclass(frozen=True)
class Series:
    """All times of one implementation in µs: per round, its cold calls and the mean of its warm calls."""

    cold: tuple[tuple[float, ...], ...]
    warm: tuple[float, ...]

    @property
    def calls(self) -> list[float]:
        """All cold calls."""
        return [x for calls in self.cold for x in calls]

    @property
    def median(self) -> float:
        """The median of all cold calls."""
        return statistics.median(self.calls)


def flushes_to_hide(implementations: Sequence[Implementation], flush_us: float) -> dict[str, int]:
    """Returns how many overwrites of L2 keep the GPU busy while each implementation launches its call.

    With them, the GPU's work is timed and not Python's. A warm call takes about as long as its launches, or longer. Beside a
    busy CPU a single call's may take longer than that, as a backward pass's do, so there are more if these make it faster.
    Also warms the implementations up.
    """
    flushes = {}
    for implementation in implementations:
        one_us = _renewed(implementation, 1)
        if one_us < CALLS_US:
            _renewed(implementation, 3)
            one_us = _renewed(implementation, 5)
        count = min(1 + math.ceil(one_us / flush_us), USUAL_FLUSHES)
        flushes[implementation.name] = count if one_us > CALLS_US else _enough(implementation, count)
    return flushes


def _enough(implementation: Implementation, count: int) -> int:
    """Returns how many overwrites hide a call's launches: ``count``, or more as long as these make it faster."""
    took = _cold(implementation, count)
    while 2 * count <= MOST_FLUSHES:
        behind_twice = _cold(implementation, 2 * count)
        if behind_twice > HIDDEN * took:
            break
        count, took = 2 * count, behind_twice
    return count


def _cold(implementation: Implementation, flushes: int) -> float:
    return statistics.median(implementation.cold(flushes) for _ in range(HIDING_CALLS))


def interleave_quietly(
    implementations: Sequence[Implementation], flushes: dict[str, int], policy: Policy, rng: random.Random
) -> tuple[dict[str, Series], dict[str, int]]:
    """Times all implementations, see ``interleave``; again, behind twice as many overwrites, as long as an interval is wide.

    On a busy machine the CPU stalls now and then, and in some rounds launches take longer than the overwrites that hide them.

    Returns:
        The series of the try with the narrowest intervals, and the overwrites behind which it was timed.
    """
    tries = []
    for _ in range(TRIES):
        series = interleave(implementations, flushes, policy, rng)
        tries.append((_widest(list(series.values())), series, flushes))
        if tries[-1][0] <= WIDE:
            break
        flushes = {name: max(count, min(2 * count, MOST_FLUSHES)) for name, count in flushes.items()}
    _, narrowest, used = min(tries, key=itemgetter(0))
    return narrowest, used


def interleave(
    implementations: Sequence[Implementation], flushes: dict[str, int], policy: Policy, rng: random.Random
) -> dict[str, Series]:
    """Times all implementations in rounds, each in a new order, so that drift affects all alike.

    Slow calls are made less often: they vary less, and nothing else is timed on the GPU meanwhile. Nor are there more
    rounds than tell the speedup of the first one over each other.
    """
    cold: dict[str, list[tuple[float, ...]]] = {c.name: [] for c in implementations}
    warm: dict[str, list[float]] = {c.name: [] for c in implementations}
    once = [c.cold(flushes[c.name]) for c in implementations]
    calls = min(policy.timing_calls, max(1, int(CALLS_US / max(once))))
    most = max(FEWEST_ROUNDS, int(ROUNDS_US / (2 * calls * sum(once))))
    for made in range(1, min(policy.timing_rounds, most) + 1):
        for implementation in rng.sample(implementations, len(implementations)):
            name = implementation.name
            cold[name].append(tuple(implementation.cold(flushes[name]) for _ in range(calls)))
            warm[name].append(_renewed(implementation, calls))
        series = {c.name: Series(tuple(cold[c.name]), tuple(warm[c.name])) for c in implementations}
        if made >= FEWEST_ROUNDS and _settled(list(series.values()), policy.between_runs):
            break
    return series


def _settled(series: Sequence[Series], between_runs: float) -> bool:
    """Whether further rounds would hardly narrow the intervals of the first one's speedups."""
    return _widest(series) <= SETTLED * math.log1p(between_runs)


def _widest(series: Sequence[Series]) -> float:
    """Returns half the width of the widest interval of the first one's speedups, by the rounds alone."""
    return max((_over(each, series[0])[1] for each in series[1:]), default=0.0)


def _renewed(implementation: Implementation, count: int) -> float:
    """Returns the mean µs of a call in a loop with fresh values."""
    implementation.renew()
    return implementation.loop(count)[0]


def spread(values: Sequence[float]) -> Spread:
    """Returns the 20th, 50th and 80th percentile."""
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    return Spread(round(cuts[1], 3), round(statistics.median(values), 3), round(cuts[7], 3))


def sample(values: Sequence[float]) -> Sample:
    """Returns what is kept of all calls."""
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    beyond = 1.5 * (high - low)
    return Sample(
        calls=len(values),
        least=round(min(values), 3),
        most=round(max(values), 3),
        mean=round(mean, 3),
        deviation=round(deviation, 3),
        quartiles=(round(low, 3), round(high, 3)),
        outliers=(
            sum(abs(x - mean) > deviation for x in values),
            sum(not low - beyond <= x <= high + beyond for x in values),
        ),
    )


def ratio(slow: Series, fast: Series, between_runs: float) -> Ratio:
    """Returns the speedup of ``fast`` over ``slow`` on cold calls, with a 95 % interval.

    Each round gives one ratio of medians. Rounds are independent draws, so the interval is Student's t
    interval over their logarithms, widened (in quadrature) by ``between_runs``, the variation that no
    number of rounds can show.
    """
    mean, within = _over(slow, fast)
    half = math.hypot(within, math.log1p(between_runs))
    return Ratio(*(round(math.exp(x), 4) for x in (mean, mean - half, mean + half)))


def _over(slow: Series, fast: Series) -> tuple[float, float]:
    """Returns the logarithm of the speedup of ``fast`` over ``slow``, and half the width of its interval by the rounds alone."""
    logs = [
        math.log(statistics.median(a) / statistics.median(b))
        for a, b in zip(slow.cold, fast.cold, strict=True)
    ]
    half = _student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return statistics.fmean(logs), half


def by_the_judge(
    implementation: Implementation,
    clock: GpuClock,
    expected_us: float,
    flushes: int,
    agree: Callable[[float, float], bool],
) -> tuple[float, float]:
    """Returns µs of one cold call by the judge's clock, and by the worker's CUDA events for the same calls.

    The judge requests N and then 2N calls. The difference cancels the overhead of a request; the time of
    the L2 overwrites, measured in its own process, is subtracted. Of each of these four times the smallest counts,
    because anything else that the machine does can only add to it. Fresh values are written before that time begins:
    from the host's memory that takes many times as long as a call, now more and now less. It is measured again until
    both clocks ``agree``, at least twice, so that no single disturbance makes them; further attempts hide more of what
    the CPU does behind overwrites.
    """
    judged: list[float] = []
    events: list[float] = []

    def candidate(calls: int, flushes: int) -> float:
        implementation.renew()
        start = time.perf_counter()
        events.extend(implementation.loop(calls, flushes))
        return time.perf_counter() - start

    def overwrites(calls: int, flushes: int) -> float:
        start = time.perf_counter()
        clock.many([], calls, flushes)
        return time.perf_counter() - start

    flush_us = clock.flush_us()
    for attempt in range(CLOCK_ATTEMPTS):
        loop_us = CLOCK_US << attempt  # more overwrites make each call longer
        fewest = 4 if 4 * expected_us < loop_us else 1
        count = max(fewest, min(100, int(loop_us / (expected_us + flushes * flush_us))))
        fastest = dict.fromkeys(itertools.product((candidate, overwrites), (count, 2 * count)), math.inf)
        for tries in range(1, CLOCK_TRIES + 1):
            for run, calls in fastest:
                fastest[run, calls] = min(fastest[run, calls], run(calls, flushes))
            once, twice, once_alone, twice_alone = fastest.values()
            # Below 0 if something else ran beside the shorter loop.
            took = (twice - once - (twice_alone - once_alone)) * 1e6 / count
            if tries > 1 and agree(took, statistics.median(events)):
                return max(took, 0.0), statistics.median(events)
        judged.append(took)
        flushes = min(2 * flushes, MOST_FLUSHES)
    return max(min(judged), 0.0), statistics.median(events)


def _student(freedom: int) -> float:
    """Returns the 97.5th percentile of Student's t, by Hill's expansion (within 1 % from 5 degrees on)."""
    z = statistics.NormalDist().inv_cdf(0.975)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + g1 / freedom + g2 / freedom**2

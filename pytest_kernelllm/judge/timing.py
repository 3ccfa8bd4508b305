"""How fast is a kernel: interleaved rounds against eager and ``torch.compile``, by events and by the judge's own clock."""

from __future__ import annotations

import functools
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_kernelllm.judge import clock
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.records import Ratio, Spread

Loop = Callable[[int, bool], list[float]]
"""``loop(count, cold)`` makes that many calls and returns µs by events, see ``clock.measure``."""


@dataclass(frozen=True)
class Contestant:
    """One of the things timed against each other."""

    name: str
    loop: Loop


@dataclass(frozen=True)
class Series:
    """All figures of one contestant, in µs: one list of cold calls a round, one warm mean a round."""

    cold: tuple[tuple[float, ...], ...]
    warm: tuple[float, ...]


def local(name: str, calls: Sequence[Callable[[], Any]]) -> Contestant:
    """A contestant that runs in the judge's own process."""
    return Contestant(name, lambda count, cold: clock.measure(calls, count, cold=cold))


def interleave(contestants: Sequence[Contestant], policy: Policy, order: random.Random) -> dict[str, Series]:
    """Time all contestants in rounds, each round in a new order, so that drift of clocks and heat falls on all."""
    for contestant in contestants:
        contestant.loop(3, False)
    cold: dict[str, list[tuple[float, ...]]] = {c.name: [] for c in contestants}
    warm: dict[str, list[float]] = {c.name: [] for c in contestants}
    for _ in range(policy.timing_rounds):
        for contestant in order.sample(contestants, len(contestants)):
            cold[contestant.name].append(tuple(contestant.loop(policy.timing_calls, True)))
            warm[contestant.name].append(contestant.loop(policy.timing_calls, False)[0])
    return {c.name: Series(tuple(cold[c.name]), tuple(warm[c.name])) for c in contestants}


def spread(values: Sequence[float]) -> Spread:
    """20th, 50th and 80th percentile."""
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    return Spread(round(cuts[1], 3), round(statistics.median(values), 3), round(cuts[7], 3))


def ratio(slow: Series, fast: Series) -> Ratio:
    """Speedup of ``fast`` over ``slow`` on cold calls, with a 95 % interval.

    Each round gives one ratio of medians; rounds are independent draws, so the interval is Student's over their
    logarithms.
    """
    logs = [
        math.log(statistics.median(a) / statistics.median(b))
        for a, b in zip(slow.cold, fast.cold, strict=True)
    ]
    mean = statistics.fmean(logs)
    half = _student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(*(round(math.exp(x), 4) for x in (mean, mean - half, mean + half)))


def by_the_judge(loop: Loop, expected_us: float) -> tuple[float, float]:
    """One warm call in µs, by the judge's clock and by the events of the same loops.

    The judge asks for N and for 2N calls and takes the difference, which cancels the way there and back. N is
    chosen to make it last about 20 ms, far above the message's 30 µs.
    """
    count = max(10, min(20_000, int(20_000 / max(expected_us, 1.0))))
    judged, events = [], []
    for _ in range(3):
        start = time.perf_counter()
        loop(count, False)
        middle = time.perf_counter()
        event = loop(2 * count, False)[0]
        end = time.perf_counter()
        judged.append(((end - middle) - (middle - start)) * 1e6 / count)
        events.append(event)
    return statistics.median(judged), statistics.median(events)


@dataclass(frozen=True)
class Roofline:
    """Measured ceilings of this GPU."""

    bytes_per_us: float
    flops_per_us: dict[str, float]

    def microseconds(self, moved: int, flops: int, dtype: str) -> float:
        """The time that moving and computing this much needs at least."""
        rate = self.flops_per_us.get(dtype, self.flops_per_us["float32"])
        return max(moved / self.bytes_per_us, flops / rate)


def measure_roofline() -> Roofline:
    """Copy and multiply for a few ms to learn what this GPU can do."""
    source = torch.empty(1 << 28, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(source)
    copied = clock.measure([functools.partial(target.copy_, source)], 8, cold=True)
    rates = {}
    for name in ("float32", "float16", "bfloat16"):
        a = torch.randn(4096, 4096, device="cuda", dtype=getattr(torch, name))
        square = functools.partial(torch.matmul, a, a)
        clock.measure([square], 3, cold=False)  # the first call sets the library up
        took = clock.measure([square], 10, cold=False)[0]
        rates[name] = 2 * 4096**3 / took
    moved = 2 * source.numel() * source.itemsize / statistics.median(copied)
    del source, target
    return Roofline(moved, rates)


def _student(freedom: int) -> float:
    """97.5th percentile of Student's t, by Hill's expansion around the normal quantile (good to 1 % from 5 degrees)."""
    z = statistics.NormalDist().inv_cdf(0.975)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + g1 / freedom + g2 / freedom**2

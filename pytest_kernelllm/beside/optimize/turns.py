"""Times ways to do the same in turns, so that whatever else changes meanwhile meets all of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from kernelllm_judge.core.records import Ratio

ROUNDS = 15
"""Rounds in which all ways take turns…"""
FEWEST = 5
"""…and fewer, but no less than these, where they take more than ``MOST_S``."""
MOST_S = 5.0


def in_turns(
    seconds: Callable[[int], float],
    ways: int,
    *,
    calls: float = 1.0,
    rounds: int = ROUNDS,
    most: float = MOST_S,
) -> list[list[float]]:
    """Returns the seconds of each way in each round. Every way ran twice before, to compile and to warm up.

    Args:
        seconds: runs one way, by its number, and returns what it took.
        calls: how many times as long running it takes as what it returns.
        rounds: at most.
        most: seconds in which no round begins any more but ``FEWEST``.
    """
    for way in range(ways):
        seconds(way)
    longest = max(seconds(way) for way in range(ways)) * calls
    number = max(FEWEST, min(rounds, int(most / (ways * longest))))
    taken: list[list[float]] = [[] for _ in range(ways)]
    for turn in range(number):
        order = range(ways) if turn % 2 else reversed(range(ways))
        for way in order:
            taken[way].append(seconds(way))
    return taken


def middle_half(slow: Sequence[float], fast: Sequence[float]) -> Ratio:
    """Returns how many times as fast the second way is: the median of the rounds, with the middle half of them."""
    ordered = _ratios(slow, fast)
    quarter = len(ordered) // 4
    return Ratio(statistics.median(ordered), ordered[quarter], ordered[-1 - quarter])


def confident(slow: Sequence[float], fast: Sequence[float]) -> Ratio:
    """The same with a 95 % interval of the median, by order statistics; of fewer than six rounds with all of them."""
    ordered = _ratios(slow, fast)
    rounds, below, rank = len(ordered), 0.0, 0
    while rank < rounds // 2 and below + math.comb(rounds, rank) / 2**rounds <= 0.025:
        below += math.comb(rounds, rank) / 2**rounds
        rank += 1
    rank = max(rank - 1, 0)
    return Ratio(statistics.median(ordered), ordered[rank], ordered[-1 - rank])


def _ratios(slow: Sequence[float], fast: Sequence[float]) -> list[float]:
    return sorted(a / b for a, b in zip(slow, fast, strict=True))

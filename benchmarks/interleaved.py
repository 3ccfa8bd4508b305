"""Several ways to compute the same, timed in rounds that run each once, in random order."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator

import torch

STUDENT = {5: 2.776, 10: 2.262, 20: 2.093, 30: 2.045, 50: 2.010}
"""Two-sided 95 % quantile of Student's t, by number of rounds."""


def where(device: str) -> str:
    """What the times are of: the GPU's name."""
    return "Triton's interpreter: no measure of anything" if device == "cpu" else torch.cuda.get_device_name()


def synchronize(device: str) -> None:
    """Waits until the GPU has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def interleaved(ways: Iterable[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Yields the number of each round with each way, in an order that differs from round to round."""
    order = list(ways)
    shuffle = random.Random(0)
    for number in range(rounds):
        shuffle.shuffle(order)
        for way in order:
            yield number, way


def ratio(base: list[float], own: list[float]) -> tuple[float, float, float]:
    """How many times as fast, with its interval, over the rounds."""
    logs = [math.log(b / o) for b, o in zip(base, own, strict=True)]
    middle = statistics.mean(logs)
    half = STUDENT[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)

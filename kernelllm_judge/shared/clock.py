"""Times calls by the GPU's events, with the same code for baselines in the judge and candidates in a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelllm_judge.core.accelerator import gpu, synchronize, timing_event

FLUSH_BYTES = 256 * 1024 * 1024
"""Bytes written between cold calls: several times the L2 of any current GPU."""


class GpuClock:
    """Times calls on the GPU, in µs by its events."""

    def __init__(self) -> None:
        """Allocates nothing yet; the first flush allocates ``FLUSH_BYTES``."""
        self._buffer: torch.Tensor | None = None

    def flush(self, times: int) -> None:
        """Overwrites L2 ``times`` times. This keeps the GPU busy while the timed call's launches queue up."""
        if self._buffer is None:
            self._buffer = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=gpu())
        for i in range(times):
            self._buffer.fill_(i)

    def flush_us(self) -> float:
        """Measures the µs that one overwrite of L2 takes where nothing else runs: the least of several means."""
        return min(self.many([lambda: self.flush(1)], 5)[1][0] for _ in range(5))

    def one(self, call: Callable[[], Any], flushes: int) -> tuple[Any, float]:
        """Makes one call behind ``flushes`` overwrites of L2. Returns its result, and its time in µs."""
        start, end = timing_event(), timing_event()
        synchronize()
        self.flush(flushes)
        start.record()
        result = call()
        end.record()
        synchronize()
        return result, start.elapsed_time(end) * 1000.0

    def many(
        self, calls: Sequence[Callable[[], Any]], count: int, flushes: int = 0
    ) -> tuple[Any, list[float]]:
        """Makes ``count`` calls one after the other, cycling through ``calls``.

        Args:
            calls: the same computation on different inputs; empty: time the flushes alone.
            flushes: overwrites of L2 before each call; 0: calls follow each other directly.

        Returns:
            The last call's result, and times in µs: with flushes one per call, otherwise the mean of all
                calls.
        """
        result = None
        synchronize()
        if not flushes:
            start, end = timing_event(), timing_event()
            start.record()
            for i in range(count):
                result = None  # two of them may not fit
                result = calls[i % len(calls)]()
            end.record()
            synchronize()
            return result, [start.elapsed_time(end) * 1000.0 / count]
        pairs = [(timing_event(), timing_event()) for _ in range(count)]
        for i, (start, end) in enumerate(pairs):
            self.flush(flushes)
            start.record()
            result = None
            if calls:
                result = calls[i % len(calls)]()
            end.record()
        synchronize()
        return result, [start.elapsed_time(end) * 1000.0 for start, end in pairs]

"""The timing loop that judge and worker share, so that baselines and candidates are timed by the same code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

FLUSH_BYTES = 256 * 1024 * 1024
"""Bytes written between cold calls: several times the L2 of any current GPU."""


def measure(calls: Sequence[Callable[[], Any]], count: int, *, cold: bool) -> list[float]:
    """Run ``count`` calls, going round the given ones, on the current CUDA device.

    Args:
        calls: the same computation on different inputs.
        count: how many calls.
        cold: overwrite L2 before each call. The write keeps the GPU busy while the call is being launched, so
            what is timed is the GPU's work and not Python.

    Returns:
        µs by CUDA events: one figure a call when cold, the mean over all calls when warm.
    """
    torch.cuda.synchronize()
    if not cold:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for i in range(count):
            calls[i % len(calls)]()
        end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1000.0 / count]
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    pairs = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(count)]
    for i, (start, end) in enumerate(pairs):
        flush.fill_(i)
        start.record()
        calls[i % len(calls)]()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1000.0 for start, end in pairs]

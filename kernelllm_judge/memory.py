"""Handles scarce GPU memory: frees the judge's cache, and finds out why an allocation failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from kernelllm_judge.core.accelerator import cached_bytes, empty_cache, free_bytes

ROOM = 4
"""How many times a probe's bytes should be free: workers hold inputs, outputs and temporaries."""

OWN = 7 << 29
"""Bytes that a verdict needs besides: two CUDA contexts, their kernels, and what is cached for the next candidate."""

ROOFLINE = 2 << 30
"""Bytes that measuring the GPU's roofline takes, once in a process."""

LARGE_STATE = 1 << 30
"""Bytes of parameters and buffers of which no copies are kept for the next probe."""

WORKER_SHARE = 0.5
"""Share of the GPU's memory that a worker may take where no budget is set: other processes use it, too."""

TEMPORARIES = 8
"""How many times a probe's bytes one honest call may need at once."""

LOSS = 1 / 16
"""Most bytes of a loss, as a share of its inputs'."""

SPARE = 1 << 30
"""Bytes that a worker needs besides: its kernels, a vendor library's workspace, the buffer that
overwrites L2."""


@dataclass(frozen=True)
class CallBytes:
    """Bytes that one call of the original takes, see ``truth.needs``."""

    inputs: int
    state: int
    """Parameters and buffers."""
    outputs: int
    peak: int
    """The most that is alive at once besides inputs and state: outputs and temporaries."""
    drawn: int
    """The most that is alive while inputs are drawn, the inputs themselves included."""
    rows: bool
    """Whether inputs and outputs have equally many rows, so that the call may be compared in slices."""
    wider: int = 2
    """How many times as large the call's tensors are in float64, at most."""

    @property
    def shared(self) -> int:
        """Bytes that judge and worker share."""
        return self.inputs + self.state + self.outputs

    def usual(self) -> int:
        """Returns the bytes of a verdict that keeps everything on the GPU.

        That is about the judge's inputs, the memory shared with the worker, what the worker allocates, and a
        baseline's outputs; and two calls in float64, with their outputs twice more, where the call cannot be cut. One is
        enough for a loss, of which no outputs are kept; its peak counts as no less than its inputs, because a run without
        data may not show all that it allocates.
        """
        copies = (4 if self.state > LARGE_STATE else 8) * self.wider * self.state
        if self.rows:
            return OWN + ROOFLINE + copies + 4 * (self.inputs + self.outputs) + 2 * (self.peak - self.outputs)
        is_loss = self.outputs <= self.inputs * LOSS
        call = self.inputs + max(self.peak, self.inputs) if is_loss else 2 * (self.inputs + self.peak)
        wide = self.wider * (call + 4 * self.outputs)
        return OWN + ROOFLINE + copies + 4 * (self.inputs + self.outputs) + wide

    def to_time(self) -> int:
        """Returns the bytes of timing a candidate that is not judged.

        That is about the judge's inputs, the memory shared with the worker, and a call of each; weights three times.
        """
        at_once = max(2 * self.inputs + self.outputs + 2 * self.peak, self.drawn)
        return OWN + ROOFLINE + 3 * self.state + at_once

    def spare(self) -> int:
        """Returns the bytes that may stay in the judge's cache while a worker runs: ``usual`` has room for them."""
        return self.inputs + self.outputs + ROOFLINE


def most(calls: Iterable[CallBytes]) -> CallBytes:
    """Returns the largest of each number: memory shared with a worker stays as large as for the largest call."""
    each = list(calls)
    numbers = {f.name: max(getattr(c, f.name) for c in each) for f in fields(CallBytes)}
    return CallBytes(**numbers | {"rows": all(c.rows for c in each)})


def release_cache(kept: int) -> None:
    """Gives cached GPU memory back to the others, where it is more than ``kept`` bytes."""
    if cached_bytes() > kept:
        empty_cache()


def make_room(needed: int, kept: int) -> None:
    """Frees the judge's own CUDA cache if the workers may need that memory.

    Allocating it anew takes long while other processes use the GPU.

    Args:
        needed: bytes of the next probe.
        kept: bytes that may stay cached.
    """
    # In this order: the driver takes long to answer where many processes use the GPU, and to free memory waits for the GPU.
    if cached_bytes() > kept and free_bytes() < SPARE + ROOM * needed:
        release_cache(kept)


def is_scarce(needed: int, allowed: int | None) -> bool:
    """Whether an honest call on ``needed`` bytes may have failed: so little memory is free, or ``allowed`` for the worker."""
    free = free_bytes()
    return min(free, free if allowed is None else allowed) < SPARE + TEMPORARIES * needed


def ran_out(error: Any) -> bool:
    """Whether a worker's error (untrusted) reports that the GPU ran out of memory."""
    if not isinstance(error, dict):
        return False
    return error.get("type") == "OutOfMemoryError" or "out of memory" in str(error.get("message"))

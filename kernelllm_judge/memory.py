"""Handles scarce GPU memory: frees the judge's cache, and finds out why an allocation failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch

from kernelllm_judge.policy import Policy

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

SLICE_BYTES = 48
"""Bytes for each element of a slice that is compared in float64: inputs, outputs of three runs, and what is derived from
them; and as many for each element that is compared at once."""

CONFIRM_BYTES = 12
"""Bytes for each element of a slice that is compared with the original's output for all rows."""

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
    row: int
    """Elements of the widest row of inputs and outputs; 0 where calls cannot be cut."""
    rows: bool
    """Whether inputs and outputs have equally many rows, so that the call may be compared in slices."""
    at_once: int = 0
    """Fewest bytes of outputs that are compared at once: one row, or all if outputs have different numbers of rows."""
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

    def least(self, policy: Policy, budget: int) -> int:
        """Returns the bytes of a verdict whose inputs lie in the host's memory, see ``truth.originals``.

        Always there: the memory shared with the worker, and the original's state. One at a time: inputs as they are
        drawn, a call of the original or the candidate, and a slice in float64; or a whole call in float64, where rows
        depend on each other and ``budget`` has room for it.
        """
        if not self.rows:
            return self.in_float64() if self.in_float64() <= budget else self.dependent()
        elements = max(policy.slice_elements, self.row)
        part = min(1.0, elements * 4 / max(self.inputs, self.outputs, 1))
        elements = min(elements, max(self.inputs, self.outputs) // 2)
        compared = elements + min(elements, policy.chunk_elements)
        cut = int(SLICE_BYTES * compared + self.wider * part * self.peak) + self.wider * self.state
        whole = self.outputs + CONFIRM_BYTES * elements
        return OWN + self.shared + self.state + max(self.drawn, self.peak, cut, whole, ROOFLINE)

    def in_float64(self) -> int:
        """Returns the same where rows depend on each other, and float64 is computed on the GPU, with copies made in turn."""
        call = (
            max((1 + self.wider) * self.inputs, self.wider * (self.inputs + self.peak))
            + self.wider * self.state
        )
        return OWN + self.shared + self.state + max(self.drawn, call + self._compared(), ROOFLINE)

    def dependent(self) -> int:
        """Returns the same where float64 is computed on the CPU, or for some rows of a loss at a time."""
        call = self.inputs + self.peak + self.outputs  # the original's are there while it is asked again
        return OWN + self.shared + self.state + max(self.drawn, call + self._compared(), ROOFLINE)

    def _compared(self) -> int:
        """Returns the bytes of outputs that are compared at once: the original's, and those of four calls in float64."""
        return 4 * (1 + self.wider) * self.at_once


def most(calls: Iterable[CallBytes]) -> CallBytes:
    """Returns the largest of each number: memory shared with a worker stays as large as for the largest call."""
    each = list(calls)
    numbers = {f.name: max(getattr(c, f.name) for c in each) for f in fields(CallBytes)}
    return CallBytes(**numbers | {"rows": all(c.rows for c in each)})


def cached_bytes() -> int:
    """Bytes of GPU memory that PyTorch keeps for this process, and no tensor uses."""
    return torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def release_cache(kept: int) -> None:
    """Gives cached GPU memory back to the others, where it is more than ``kept`` bytes."""
    if cached_bytes() > kept:
        torch.cuda.empty_cache()


def register_host_memory() -> None:
    """Has host memory pinned by several threads: the driver alone takes about two seconds for 8 GiB of it."""
    configure = getattr(torch._C, "_accelerator_setAllocatorSettings", None)  # of recent versions of PyTorch
    if configure is None:
        return
    configure("pinned_use_cuda_host_register:True,pinned_num_register_threads:8")
    try:
        torch.empty(1, pin_memory=True)
    except RuntimeError:  # not everywhere may a process pin memory that it has already
        configure("pinned_use_cuda_host_register:False")


def release_host_cache() -> None:
    """Gives cached memory of the host, which is pinned for the GPU, back to the system."""
    release = getattr(torch.accelerator, "empty_host_cache", None)  # of recent versions of PyTorch
    if release is not None:
        release()


def make_room(needed: int, kept: int) -> None:
    """Frees the judge's own CUDA cache if the workers may need that memory.

    Allocating it anew takes long while other processes use the GPU.

    Args:
        needed: bytes of the next probe.
        kept: bytes that may stay cached.
    """
    # In this order: the driver takes long to answer where many processes use the GPU, and to free memory waits for the GPU.
    if cached_bytes() > kept and torch.cuda.mem_get_info()[0] < SPARE + ROOM * needed:
        release_cache(kept)


def is_scarce(needed: int, allowed: int | None) -> bool:
    """Whether an honest call on ``needed`` bytes may have failed: so little memory is free, or ``allowed`` for the worker."""
    free = torch.cuda.mem_get_info()[0]
    return min(free, free if allowed is None else allowed) < SPARE + TEMPORARIES * needed


def ran_out(error: Any) -> bool:
    """Whether a worker's error (untrusted) reports that the GPU ran out of memory."""
    if not isinstance(error, dict):
        return False
    return error.get("type") == "OutOfMemoryError" or "out of memory" in str(error.get("message"))

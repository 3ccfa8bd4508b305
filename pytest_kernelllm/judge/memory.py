"""Handles scarce GPU memory: frees the judge's cache, and finds out why an allocation failed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from pytest_kernelllm.core.records import Case, TensorSpec

ROOM = 4
"""How many times a probe's bytes should be free: workers hold inputs, outputs and temporaries."""

CALLS = 4
"""How many times the bytes of an original's call a verdict needs: the judge's inputs, the memory shared with the
worker, what the worker allocates, and a baseline's outputs."""

OWN = 2 << 30
"""Bytes that a verdict needs besides: two CUDA contexts, their kernels, and what is cached for the next candidate."""

JUDGE_SHARE = 0.75
"""Share of a budget of GPU memory that the judge itself may take, with what it shares with workers…"""

WORKER_SHARE = 0.5
"""…and of the GPU that a worker may: other processes use it, too. Of a budget, it may take what is left."""

TEMPORARIES = 8
"""How many times a probe's bytes one honest call may need at once."""

SPARE = 1 << 30
"""Bytes that a worker needs besides: its kernels, a vendor library's workspace, the buffer that
overwrites L2."""


def verdict_bytes(cases: Iterable[Case]) -> int:
    """Returns about how many bytes of GPU memory a verdict on a target with these cases takes.

    Outputs count as much as the inputs; how large they are is not known before the original has run.
    """
    calls = [
        sum(
            math.prod(case.sizes[d] if isinstance(d, str) else d for d in spec.shape)
            * getattr(torch, spec.dtype).itemsize
            for spec in case.domain.inputs.values()
            if isinstance(spec, TensorSpec)
        )
        for case in cases
    ]
    return OWN + CALLS * 2 * max(calls, default=0)


def release_cache() -> None:
    """Gives cached GPU memory back to the others, where it is much."""
    if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > OWN:
        torch.cuda.empty_cache()


def make_room(needed: int) -> None:
    """Frees the judge's own CUDA cache if the workers may need that memory.

    Args:
        needed: bytes of the next probe.
    """
    if torch.cuda.mem_get_info()[0] < SPARE + ROOM * needed:
        torch.cuda.empty_cache()  # only then: it waits for the GPU


def is_scarce(needed: int) -> bool:
    """Whether free GPU memory is so low that an honest call on ``needed`` bytes may have failed."""
    return torch.cuda.mem_get_info()[0] < SPARE + TEMPORARIES * needed


def ran_out(error: Any) -> bool:
    """Whether a worker's error (untrusted) reports that the GPU ran out of memory."""
    if not isinstance(error, dict):
        return False
    return error.get("type") == "OutOfMemoryError" or "out of memory" in str(error.get("message"))

"""Handles scarce GPU memory: frees the judge's cache, and finds out why an allocation failed."""

from __future__ import annotations

from typing import Any

import torch

ROOM = 32
"""How many times a probe's bytes should be free: several workers hold inputs, outputs and temporaries."""

TEMPORARIES = 8
"""How many times a probe's bytes one honest call may need at once."""

SPARE = 1 << 30
"""Bytes that a worker needs besides: its kernels, a vendor library's workspace, the buffer that
overwrites L2."""


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

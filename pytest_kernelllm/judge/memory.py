"""A GPU's memory when little of it is left: what the judge gives back, and who is to blame that there is none."""

from __future__ import annotations

from typing import Any

import torch

ROOM = 32
"""Times a probe's bytes that should be free for the workers: several, each with inputs, outputs and temporaries."""

TEMPORARIES = 8
"""Times a probe's bytes that one honest call may need at once."""

SPARE = 1 << 30
"""Bytes that a worker may need beside: its kernels, a vendor library's workspace, what it overwrites L2 with."""


def make_room(needed: int) -> None:
    """Give the judge's own cache back to the GPU where the workers may miss it.

    Args:
        needed: bytes of the probe that they are asked next.
    """
    if torch.cuda.mem_get_info()[0] < SPARE + ROOM * needed:
        torch.cuda.empty_cache()  # not always: it waits for the GPU


def is_scarce(needed: int) -> bool:
    """Whether an honest call on ``needed`` bytes may have failed for want of memory, as far as the GPU says now."""
    return torch.cuda.mem_get_info()[0] < SPARE + TEMPORARIES * needed


def ran_out(error: Any) -> bool:
    """Whether a worker's error, which is untrusted, says that the GPU had no memory left."""
    if not isinstance(error, dict):
        return False
    return error.get("type") == "OutOfMemoryError" or "out of memory" in str(error.get("message"))

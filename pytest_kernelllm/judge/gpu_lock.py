"""One GPU for many processes: shared for compiling and checking, alone for timing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def hold_gpu(uuid: str, *, alone: bool) -> Iterator[None]:
    """Hold the GPU named ``uuid``, together with other checkers or alone.

    ``flock`` on a file of this user's, because it knows shared and exclusive holders, works across processes and is
    dropped by the system when its holder dies.
    """
    path = Path(tempfile.gettempdir()) / f"kernelllm-{os.getuid()}-{uuid or 'gpu'}.lock"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield

"""One GPU for many processes: shared for compiling and checking, alone for timing.

``flock`` on files of this user's, because it knows shared and exclusive holders, works across processes and threads and
is dropped by the system when its holder dies. By itself it is not fair: checkers who come and go would keep out for ever
who wants the GPU alone. So everybody first passes a turnstile, one at a time; who wants to be alone stays in it until
the others have left, and nobody overtakes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("/tmp")
"""Not ``$TMPDIR``: two runs that do not agree on it would time at the same moment."""


@contextlib.contextmanager
def hold_gpu(uuid: str, *, alone: bool) -> Iterator[None]:
    """Hold the GPU named ``uuid``, together with other checkers or alone.

    Not to be nested: who holds the GPU and asks again may wait for himself.
    """
    stem = f"kernelllm-{os.getuid()}-{uuid or 'gpu'}"
    with _flock(FOLDER / f"{stem}.lock") as room:
        with _flock(FOLDER / f"{stem}.turnstile") as turnstile:
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def _flock(path: Path) -> Iterator[int]:
    """An open file to lock; unlocked at the end, also where a child being started holds a copy of the descriptor."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)

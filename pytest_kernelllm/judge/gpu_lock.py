"""Locks a GPU across processes: shared for checking, exclusive for timing.

The lock is ``flock`` on a file per user and GPU: it has shared and exclusive holders, works across
processes and threads, and the system drops it when its holder dies. ``flock`` alone is not fair: a stream
of shared holders could keep an exclusive one waiting for ever. So every process first takes a second
lock, the turnstile, and holds it until it has the first: nobody overtakes a process that waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("/tmp")
"""Not ``$TMPDIR``: two runs with different values would not exclude each other."""


@dataclass(frozen=True)
class Hold:
    """A hold of the GPU, which can be interrupted."""

    lock: int
    """Descriptor of the file that is locked."""
    turnstile: Path
    how: int
    """``LOCK_EX`` or ``LOCK_SH``."""

    def acquire(self) -> None:
        """Waits in line for the GPU."""
        with _flock(self.turnstile) as turnstile:
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            fcntl.flock(self.lock, self.how)

    def release(self) -> None:
        """Lets others have the GPU until ``acquire``."""
        fcntl.flock(self.lock, fcntl.LOCK_UN)


@contextlib.contextmanager
def hold_gpu(uuid: str, *, alone: bool) -> Iterator[Hold]:
    """Holds the GPU named ``uuid``, alone or together with other checkers.

    Must not be nested: a process that takes the lock twice may wait for itself.
    """
    stem = f"kernelllm-{os.getuid()}-{uuid or 'gpu'}"
    with _flock(FOLDER / f"{stem}.lock") as lock:
        hold = Hold(lock, FOLDER / f"{stem}.turnstile", fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        hold.acquire()
        yield hold


@contextlib.contextmanager
def _flock(path: Path) -> Iterator[int]:
    """Opens a file to lock; unlocks it at the end even if a child process holds a copy of the descriptor."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)

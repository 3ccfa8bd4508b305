"""Locks a GPU across processes: shared for checking, exclusive for timing.

The lock is ``flock`` on a file per user and GPU: it has shared and exclusive holders, works across
processes and threads, and the system drops it when its holder dies. Who times goes first: it holds a second
lock, the turnstile, together with all others that time or wait to, and who checks passes it only when none
of them is left. While it waits the GPU has less and less to do, as one checker after the other ends; so those
that are ready by then are timed one after the other. None is waited for twice, because it checks in between.
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
    turnstile: int
    """Descriptor of the file that is locked before."""
    alone: bool

    def acquire(self) -> None:
        """Waits for the GPU."""
        if self.alone:
            fcntl.flock(self.turnstile, fcntl.LOCK_SH)
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        else:
            fcntl.flock(self.turnstile, fcntl.LOCK_EX)
            fcntl.flock(self.lock, fcntl.LOCK_SH)
            fcntl.flock(self.turnstile, fcntl.LOCK_UN)

    def release(self) -> None:
        """Lets others have the GPU until ``acquire``."""
        fcntl.flock(self.lock, fcntl.LOCK_UN)
        fcntl.flock(self.turnstile, fcntl.LOCK_UN)


@contextlib.contextmanager
def hold_gpu(uuid: str, *, alone: bool) -> Iterator[Hold]:
    """Holds the GPU named ``uuid``, alone or together with other checkers.

    Must not be nested: a process that takes the lock twice may wait for itself.
    """
    stem = f"kernelllm-{os.getuid()}-{uuid or 'gpu'}"
    # In this order: at the end the GPU is unlocked first.
    with _file(FOLDER / f"{stem}.turnstile") as turnstile, _file(FOLDER / f"{stem}.lock") as lock:
        hold = Hold(lock, turnstile, alone)
        hold.acquire()
        yield hold


@contextlib.contextmanager
def _file(path: Path) -> Iterator[int]:
    """Opens a file to lock; unlocks it at the end even if a child process holds a copy of the descriptor."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)

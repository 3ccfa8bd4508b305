"""Shares a GPU between processes: its time by a lock, shared for checking and exclusive for timing, its memory by a ledger.

The lock is ``flock`` on a file per user and GPU: it has shared and exclusive holders, works across
processes and threads, and the system drops it when its holder dies. Who times goes first: it holds a second
lock, the turnstile, together with all others that time or wait to, and who checks passes it only when none
of them is left. While it waits the GPU has less and less to do, as one checker after the other ends; so those
that are ready by then are timed one after the other. None is waited for twice, because it checks in between.

The ledger is a file whose bytes stand for units of memory; a lease locks as many bytes as it needs. Those locks
belong to open files (``F_OFD_SETLK``), so they hold between threads as between processes. The next in line holds a
turnstile until it has its lease, so small leases do not overtake a large one for ever. Leases of more than half the
budget wait for each other before that: only one of them can be held, and others fit beside it meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
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
    # In this order: at the end the GPU is unlocked first.
    with _file(uuid, ".turnstile") as turnstile, _file(uuid, ".lock") as lock:
        hold = Hold(lock, turnstile, alone)
        hold.acquire()
        yield hold


@contextlib.contextmanager
def _file(uuid: str, suffix: str) -> Iterator[int]:
    """Opens a GPU's file to lock; unlocks it at the end even if a child process holds a copy of the descriptor."""
    path = FOLDER / f"kernelllm-{os.getuid()}-{uuid or 'gpu'}{suffix}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


UNIT = 1 << 28
"""Bytes of GPU memory that one byte of the file stands for."""

_FLOCK = "hhqqi"
"""``struct flock``: type, whence, start, length, process."""


class GpuLedger:
    """The leases of one GPU's memory. Thread-safe."""

    def __init__(self, gpu_uuid: str, budget: int) -> None:
        """Takes no lease yet.

        Args:
            budget: bytes that all leases together may take. Equal for all processes, or the largest counts.
        """
        self.budget = budget
        self._uuid = gpu_uuid

    @contextlib.contextmanager
    def lease(self, needed: int) -> Iterator[int]:
        """Waits until ``needed`` bytes are free, at most the whole budget, and leases them.

        Must not be nested: a thread that waits for a second lease may wait for itself.

        Yields:
            The bytes that are leased.
        """
        every = max(1, self.budget // UNIT)
        units = min(max(1, -(-needed // UNIT)), every)
        with contextlib.ExitStack() as held:
            if 2 * units > every:
                fcntl.flock(held.enter_context(_file(self._uuid, ".memory-large")), fcntl.LOCK_EX)
            ledger = held.enter_context(_file(self._uuid, ".memory"))
            with _file(self._uuid, ".memory-turnstile") as turnstile:
                fcntl.flock(turnstile, fcntl.LOCK_EX)
                free = [unit for unit in range(every) if _lock(ledger, unit, wait=False)]
                for unit in free[units:]:
                    _unlock(ledger, unit)
                taken = [unit for unit in range(every) if unit not in free][: max(0, units - len(free))]
                for unit in taken:  # until those who have them are done
                    _lock(ledger, unit, wait=True)
            yield units * UNIT


def _lock(file: int, unit: int, *, wait: bool) -> bool:
    request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, unit, 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, request)
    except BlockingIOError:
        return False
    return True


def _unlock(file: int, unit: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, unit, 1, 0))

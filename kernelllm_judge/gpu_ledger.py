"""Shares a GPU's memory between all judging processes of a user: a verdict that finds too little waits.

The ledger is a file whose bytes stand for units of memory; a lease locks as many bytes as it needs. The locks
belong to open files (``F_OFD_SETLK``), so they hold between threads as between processes, and the system drops
them when a process dies. The next in line holds a second lock, the turnstile, until it has its lease, so
small leases do not overtake a large one for ever. Leases of more than half the budget wait for each other before
that: only one of them can be held, and others fit beside it meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator

from kernelllm_judge.gpu_lock import FOLDER

UNIT = 1 << 28
"""Bytes of GPU memory that one byte of the file stands for."""

_FLOCK = "hhqqi"
"""``struct flock``: type, whence, start, length, process."""


class GpuLedger:
    """The leases of one GPU's memory. Thread-safe."""

    def __init__(self, gpu_uuid: str, budget: int) -> None:
        """Takes no lease yet.

        Args:
            gpu_uuid: names the file.
            budget: bytes that all leases together may take. Equal for all processes, or the largest counts.
        """
        self.budget = budget
        self._stem = FOLDER / f"kernelllm-{os.getuid()}-{gpu_uuid or 'gpu'}"

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
                fcntl.flock(held.enter_context(self._opened(".memory-large")), fcntl.LOCK_EX)
            ledger = held.enter_context(self._opened(".memory"))
            with self._opened(".memory-turnstile") as turnstile:
                fcntl.flock(turnstile, fcntl.LOCK_EX)
                free = [unit for unit in range(every) if _lock(ledger, unit, wait=False)]
                for unit in free[units:]:
                    _unlock(ledger, unit)
                taken = [unit for unit in range(every) if unit not in free][: max(0, units - len(free))]
                for unit in taken:  # until those who have them are done
                    _lock(ledger, unit, wait=True)
            yield units * UNIT

    @contextlib.contextmanager
    def _opened(self, suffix: str) -> Iterator[int]:
        path = self._stem.with_suffix(suffix)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            yield file
        finally:
            os.close(file)


def _lock(file: int, unit: int, *, wait: bool) -> bool:
    request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, unit, 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, request)
    except BlockingIOError:
        return False
    return True


def _unlock(file: int, unit: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, unit, 1, 0))

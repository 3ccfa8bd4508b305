"""One slot of this machine: one process after the other does its jobs."""

from __future__ import annotations

import math
import threading

from kernelllm_judge.forking import HostEnded
from kernelllm_judge.launching import ServerFailed
from kernelllm_judge.shared.channel import ChannelClosed, ChannelError
from pytest_kernelllm.pool.hosts import Hosts
from pytest_kernelllm.pool.jobs import CannotStart, PoolJob, ProcessLost
from pytest_kernelllm.pool.pool_process import UNFIT, PoolProcess, Reply, Slot, StageOverdue

STARTS, RESTARTS = 2, 6
"""How often a process is started in a slot before the slot is given up: at first, and after one has started there.

Some may be killed from outside; and where one has started, others probably can."""


class ProcessSlot:
    """A ``Transport`` to a process. A job whose process ends is done once more, as the first one of a fresh process."""

    def __init__(self, module: str, slot: Slot, hosts: Hosts, stage_seconds: float = math.inf) -> None:
        """Makes a slot; ``start`` starts its process, which is forked from one of ``hosts``."""
        self.starts = 0
        self._module = module
        self._slot = slot
        self._hosts = hosts
        self._stage_seconds = stage_seconds
        self._process: PoolProcess | None = None
        self._closed = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Starts a process, unless one is there."""
        if self._process is not None:
            return
        how = ""
        for _ in range(RESTARTS if self.starts else STARTS):
            try:
                with self._lock:
                    if self._closed:
                        raise CannotStart("the pool is being closed")
                    process = self._process = PoolProcess(self._module, self._slot, self._hosts)
                process.ask(self._slot.handshake)
                self.starts += 1
                return
            except (ChannelClosed, ChannelError):
                how = self._ended(by_itself=True)
            except (OSError, HostEnded, ServerFailed) as error:  # no memory or no descriptor for a process
                how = f"{error}"
        raise CannotStart(how)

    def do(self, job: PoolJob) -> Reply:
        """Does one job in the process here, which is started or replaced where needed."""
        try:
            return self._reply(job)
        except ProcessLost as first:  # perhaps through an earlier job, or from outside
            try:
                return self._reply(job)
            except ProcessLost as second:
                raise ProcessLost(f"{first}; a fresh one: {second}") from None

    def end(self) -> None:
        """Has the process end, and waits for it."""
        self._ended()

    def close(self, seconds: float = math.inf) -> None:
        """Starts nothing more, and has the process end, within so many seconds."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.terminate(seconds)

    def _reply(self, job: PoolJob) -> Reply:
        reply = self._ask(job)
        if UNFIT in reply:
            self.end()
            reply = self._ask(job)
        return reply

    def _ask(self, job: PoolJob) -> Reply:
        self.start()
        assert self._process is not None
        try:
            return self._process.ask(job.request, self._stage_seconds, job.parts)
        except (ChannelClosed, ChannelError):
            raise ProcessLost(self._ended(by_itself=True)) from None
        except StageOverdue:
            self.end()
            raise

    def _ended(self, *, by_itself: bool = False) -> str:
        """Waits until the process has ended, if there is one, and says how.

        ``by_itself``: it closed its channel, so it is ending without being asked.
        """
        process = self._process
        if process is None:
            return ""
        with self._lock:
            process.kill_later() if by_itself else process.terminate()
        how = process.wait()
        with self._lock:
            self._process = None
            process.reap()
        return how

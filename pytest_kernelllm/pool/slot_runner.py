"""Does the jobs of one slot on this machine, by one process after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from kernelllm_judge.shared.channel import ChannelClosed, ChannelError
from pytest_kernelllm.pool.job_queue import JobQueue
from pytest_kernelllm.pool.jobs import CannotStart, PoolFailed, PoolJob, ProcessLost, Task, kept_after
from pytest_kernelllm.pool.pool_process import UNFIT, PoolProcess, Reply, Slot, StageOverdue

STARTS, RESTARTS = 2, 6
"""How often a process is started in a slot before the slot is given up: at first, and after one has started there.

Some may be killed from outside; and where one has started, others probably can."""


class SlotRunner:
    """Runs the processes of one slot, one after the other. Its one thread starts each, talks to it and ends it.

    One thread, because the system ends a process when the thread that started it ends.
    """

    def __init__(self, module: str, slot: Slot, stage_seconds: float) -> None:
        """Starts nothing yet; the arguments are those of ``ProcessPool``."""
        self.started = False
        """Whether a process has started here."""
        self._module = module
        self._slot = slot
        self._stage_seconds = stage_seconds
        self._process: PoolProcess | None = None
        self._closed = False
        self._lock = threading.Lock()

    def work(self, tasks: JobQueue[Task], give_up: Callable[[Task | None, str], None]) -> None:
        """Does jobs until the queue is closed, or no process starts any more."""
        groups: Sequence[str] | None = None
        while (task := tasks.take(groups)) is not None:
            before = self._process
            try:
                task.future.set_result(self.do(task.job))
            except (ProcessLost, StageOverdue) as failure:
                task.future.set_exception(failure)
            except CannotStart as failure:
                give_up(task, str(failure))
                return
            except Exception as error:  # whoever waits must get it
                task.future.set_exception(PoolFailed(f"The pool failed: {type(error).__name__}: {error}"))
                self._end()  # it may still send a reply, which would be taken for the next job's
            groups = kept_after(task, groups if self._process is before else None)
        self._end()

    def close(self) -> None:
        """From any thread: starts nothing more, and asks the process to end."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.terminate()

    def do(self, job: PoolJob) -> Reply:
        """Does one job in the process here, which is started or replaced where needed.

        Raises:
            ProcessLost: two processes ended.
            StageOverdue: the job stayed too long in a stage.
            CannotStart: no process starts here.
        """
        try:
            return self._reply(job)
        except ProcessLost as first:  # perhaps through an earlier job, or from outside
            try:
                return self._reply(job)
            except ProcessLost as second:
                raise ProcessLost(f"{first}; a fresh one: {second}") from None

    def _reply(self, job: PoolJob) -> Reply:
        reply = self._ask(job)
        if UNFIT in reply:
            self._end()
            reply = self._ask(job)
        return reply

    def _ask(self, job: PoolJob) -> Reply:
        process = self._process or self._start()
        try:
            return process.ask(job.request, self._stage_seconds)
        except (ChannelClosed, ChannelError):
            raise ProcessLost(self._end(by_itself=True)) from None
        except StageOverdue:
            self._end()
            raise

    def _start(self) -> PoolProcess:
        how = ""
        for _ in range(RESTARTS if self.started else STARTS):
            try:
                with self._lock:
                    if self._closed:
                        raise ProcessLost("the pool is being closed")
                    process = self._process = PoolProcess(self._module, self._slot)
                process.ask(self._slot.handshake)
                self.started = True
                return process
            except (ChannelClosed, ChannelError):
                how = self._end(by_itself=True)
            except OSError as error:  # no memory or no descriptor for a process
                how = f"{error}"
        raise CannotStart(how)

    def _end(self, *, by_itself: bool = False) -> str:
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

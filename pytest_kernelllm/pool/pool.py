"""A pool of processes that do jobs: spread over GPUs, each taking the next job when it is free, replaced when they die.

The pool does not know what a job is: requests and replies are JSON. No job is lost with a process or a slot.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field
from typing import Self

from pytest_kernelllm.judge.shared.channel import ChannelClosed, ChannelError
from pytest_kernelllm.pool.job_queue import JobQueue
from pytest_kernelllm.pool.jobs import Answer, Engine, PoolFailed, PoolJob, ProcessLost
from pytest_kernelllm.pool.pool_process import UNFIT, PoolProcess, Reply, Slot, StageOverdue

STARTS, RESTARTS = 2, 6
"""How often a process is started in a slot before the slot is given up: at first, and after one has started there.

Some may be killed from outside; and where one has started, others probably can."""


class _CannotStart(Exception):
    """No process starts in a slot; the text says why."""


@dataclass(frozen=True)
class _Task:
    """A job, and where its reply is awaited."""

    job: PoolJob
    future: Future[Reply] = field(default_factory=Future)

    @property
    def group(self) -> str:
        return self.job.group

    @property
    def can_wait(self) -> bool:
        return self.job.can_wait


class ProcessPool(Engine):
    """One process in each slot, started when there is something to do. Close it with ``with``; that ends them all."""

    def __init__(self, module: str, slots: Sequence[Slot], stage_seconds: float = math.inf) -> None:
        """Starts nothing yet.

        Args:
            module: run as ``python -m module FD``, at most once at a time for each slot.
            slots: places for processes.
            stage_seconds: how long a process may stay in a stage that it reports.
        """
        self._runners = [_SlotRunner(module, slot, stage_seconds) for slot in slots]
        self._unused = deque(self._runners)
        self._queue: JobQueue[_Task] = JobQueue(len(slots))
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()
        self._working = 0
        """Slots that take jobs."""
        self._over: Callable[[], Exception] | None = None
        """Once nothing more is done: why not."""

    @property
    def slots(self) -> int:
        """How many jobs are done side by side, at most."""
        return len(self._runners)

    def __enter__(self) -> Self:
        """Starts nothing yet."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Ends all processes, which end their own children; jobs that are not done fail with ``ProcessLost``."""
        self._stop(lambda: ProcessLost("the pool is closed"))
        for runner in self._runners:
            runner.close()
        for thread in self._threads:
            thread.join()

    def prefer(self, group: str) -> None:
        """Prefers a group from now on: other groups' jobs that can wait leave one slot free for its jobs."""
        self._queue.prefer(group)

    def submit(self, job: PoolJob) -> Future[Reply]:
        """Does a job as soon as a slot is free; starts another slot where there is enough to do.

        A job whose process ends is done once more, as the first one of a fresh process. A slot in which no process starts leaves
        its job to the others. The future raises ``ProcessLost`` or ``StageOverdue`` for what kept the job from a reply, and
        ``PoolFailed`` where no process starts in any slot, from the beginning.
        """
        task = _Task(job)
        with self._lock:
            if self._over is not None:
                task.future.set_exception(self._over())
            elif self._queue.put(task):
                self._use_another()
        return task.future

    def run(self, jobs: Sequence[PoolJob]) -> Iterator[tuple[PoolJob, Answer]]:
        """Does all jobs; yields each with its reply, or with what kept it from having one, as they are done.

        Raises:
            PoolFailed: no process starts in any slot, from the beginning; or the pool itself failed.
        """
        jobs_by_future = {self.submit(job): job for job in jobs}
        for future in as_completed(jobs_by_future):
            failure = future.exception()
            if isinstance(failure, ProcessLost | StageOverdue):
                yield jobs_by_future[future], failure
            else:
                yield jobs_by_future[future], future.result()

    def _use_another(self) -> None:
        if self._unused:
            self._working += 1
            self._queue.announce()
            # Daemons: waiting for a process must not hold up a command that is interrupted twice.
            thread = threading.Thread(
                target=self._unused.popleft().work, args=(self._queue, self._give_up), daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _give_up(self, task: _Task, why: str) -> None:
        """A slot in which no process starts leaves its job to the others, and takes no more."""
        with self._lock:
            self._working -= 1
            if self._over is not None:
                task.future.set_exception(self._over())
                return
            self._queue.give_up(task)
            self._use_another()
            if self._working:
                return
            if any(runner.started for runner in self._runners):
                self._stop(lambda: ProcessLost(f"no other one starts: {why}"))
            else:
                self._stop(lambda: PoolFailed(f"A judging process cannot start: {why}"))

    def _stop(self, why: Callable[[], Exception]) -> None:
        with self._lock:
            self._over = self._over or why
            for task in self._queue.close():
                task.future.set_exception(self._over())


class _SlotRunner:
    """Runs the processes of one slot, one after the other. Its one thread starts each, talks to it and ends it.

    One thread, because the system ends a process when the thread that started it ends.
    """

    def __init__(self, module: str, slot: Slot, stage_seconds: float) -> None:
        self.started = False
        """Whether a process has started here."""
        self._module = module
        self._slot = slot
        self._stage_seconds = stage_seconds
        self._process: PoolProcess | None = None
        self._closed = False
        self._lock = threading.Lock()

    def work(self, tasks: JobQueue[_Task], give_up: Callable[[_Task, str], None]) -> None:
        """Does jobs until the queue is closed, or no process starts any more."""
        group = None
        while (task := tasks.take(group)) is not None:
            group = task.group
            try:
                task.future.set_result(self._do(task.job))
            except (ProcessLost, StageOverdue) as failure:
                task.future.set_exception(failure)
            except _CannotStart as failure:
                give_up(task, str(failure))
                return
            except Exception as error:  # whoever waits must get it
                task.future.set_exception(PoolFailed(f"The pool failed: {type(error).__name__}: {error}"))
                self._end()  # it may still send a reply, which would be taken for the next job's
        self._end()

    def close(self) -> None:
        """From any thread: starts nothing more, and asks the process to end."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.terminate()

    def _do(self, job: PoolJob) -> Reply:
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
        raise _CannotStart(how)

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

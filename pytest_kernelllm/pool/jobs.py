"""Jobs, and the engine that has them done: in slots of this machine, or of a cluster."""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, Protocol, Self

from pytest_kernelllm.pool.hosts import Hosts
from pytest_kernelllm.pool.job_queue import JobQueue
from pytest_kernelllm.pool.pool_process import HURRY, Reply, StageOverdue

KEPT_GROUPS = 3
"""Number of groups that a process keeps prepared: those of its last jobs."""


Parts = SimpleQueue[Reply | None]
"""Parts of a reply, and None behind the last one."""


@dataclass(frozen=True)
class PoolJob:
    """One piece of work for a process."""

    name: str
    """By which the caller knows the job."""
    group: str
    """Jobs of one group go to a process that keeps it, while another process has something else to do."""
    request: dict[str, Any]
    """The message to the process."""
    parts: Parts | None = field(default=None, compare=False)
    """Gets parts of the reply before it comes; all are in the reply again."""


@dataclass(frozen=True)
class Task:
    """A job, and where its reply is awaited."""

    job: PoolJob
    future: Future[Reply] = field(default_factory=Future)
    lost: str = ""
    """How the slot that did it first was lost, where another one does it once more."""

    @property
    def group(self) -> str:
        """``PoolJob.group``"""
        return self.job.group


def kept_after(task: Task, groups: Sequence[str] | None) -> Sequence[str]:
    """Returns what a process keeps after a task, the task's group first; ``groups`` is what it kept before."""
    return [*dict.fromkeys((task.group, *(groups or ())))][:KEPT_GROUPS]


class ProcessLost(Exception):
    """No process lives to reply: two ended, or none starts any more; the text says how."""


class SlotLost(Exception):
    """What did a job is gone, through no fault of the job; the text says how."""


class PoolFailed(RuntimeError):
    """No process can be started; the text says why."""


class CannotStart(Exception):
    """No process starts in a slot; the text says why."""


Answer = Reply | ProcessLost | StageOverdue


class Transport(Protocol):
    """Takes jobs to what does them in one slot, and starts and ends that. One thread uses it, except for ``close``."""

    starts: int
    """How often something was started here. It keeps nothing of what an earlier one prepared."""

    def start(self) -> None:
        """Starts what does the jobs, unless it is there.

        Raises:
            CannotStart: it does not start, or ``close`` was called.
        """

    def do(self, job: PoolJob) -> Reply:
        """Does one job, after ``start``.

        Raises:
            ProcessLost, StageOverdue: what kept the job from a reply.
            SlotLost: another slot should do it.
            CannotStart: as for ``start``.
        """

    def end(self) -> None:
        """Ends what was started."""

    def close(self, seconds: float = math.inf) -> None:
        """From any thread: starts nothing more, and has what was started end, within so many seconds where it can."""


class Engine:
    """Does jobs in slots, each of which is begun when there is enough to do for it. Close it with ``with``."""

    def __init__(
        self, slots: Sequence[Transport] = (), limit: int = sys.maxsize, hosts: Hosts | None = None
    ) -> None:
        """Makes an engine; a slot is started when there is enough to do for it. ``hosts`` are closed with it."""
        self._slots = list(slots)
        self._limit = limit
        self._hosts = hosts
        self._unused = deque(self._slots)
        self._queue: JobQueue[Task] = JobQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()
        self._working = 0
        """Slots that take jobs."""
        self._over: Callable[[], Exception] | None = None
        """Once nothing more is done: why not."""

    @property
    def slots(self) -> int:
        """How many jobs are done side by side, at most."""
        return min(len(self._slots), self._limit)

    def __enter__(self) -> Self:
        """Prepares to take jobs.

        Raises:
            PoolFailed: a cluster cannot be reached.
        """
        return self

    def __exit__(self, *exc: object) -> None:
        """Ends what was started in the slots; jobs that are not done fail with ``ProcessLost``."""
        self.stop(HURRY if exc and exc[0] is KeyboardInterrupt else math.inf)
        for thread in self._threads:
            thread.join()
        if self._hosts is not None:
            self._hosts.close()

    def stop(self, seconds: float = math.inf) -> None:
        """Has what was started end, within so many seconds, and returns at once; jobs that are not done fail with ``ProcessLost``."""
        self._stop(lambda: ProcessLost("the pool is closed"))
        for slot in self._slots:
            slot.close(seconds)

    def warm(self, count: int) -> None:
        """Starts so many slots before there is something to do, as far as there are so many."""
        with self._lock:
            for _ in range(count if self._over is None else 0):
                self._use_another()

    def submit(self, job: PoolJob) -> Future[Reply]:
        """Does a job as soon as a slot is free; starts another slot where there is enough to do.

        A slot in which nothing starts leaves its job to the others. The future raises ``ProcessLost`` or ``StageOverdue`` for what
        kept the job from a reply, and ``PoolFailed`` where nothing starts in any slot, from the beginning.
        """
        task = Task(job)
        with self._lock:
            if self._over is not None:
                task.future.set_exception(self._over())
            elif self._queue.put(task):
                self._use_another()
        return task.future

    def run(self, jobs: Sequence[PoolJob]) -> Iterator[tuple[PoolJob, Answer]]:
        """Does all jobs; yields each with its reply, or with what kept it from having one, as they are done.

        Raises:
            PoolFailed: nothing starts in any slot, from the beginning; or the pool itself failed.
        """
        jobs_by_future = {self.submit(job): job for job in jobs}
        for future in as_completed(jobs_by_future):
            failure = future.exception()
            if isinstance(failure, ProcessLost | StageOverdue):
                yield jobs_by_future[future], failure
            else:
                yield jobs_by_future[future], future.result()

    def _add(self, slot: Transport) -> None:
        """Uses one more slot, at once if there is enough to do."""
        with self._lock:
            if self._over is None:
                self._slots.append(slot)
                self._unused.append(slot)
                if self._queue.lacks_takers():
                    self._use_another()

    def _use_another(self) -> None:
        if self._unused and self._working < self._limit:
            self._working += 1
            self._queue.announce()
            # Daemons: waiting for a process must not hold up a command that is interrupted twice.
            thread = threading.Thread(target=self._work, args=(self._unused.popleft(),), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self, slot: Transport) -> None:
        """Does jobs in a slot until the queue is closed, or nothing starts there any more.

        One thread for each slot, because the system ends a process when the thread that started it ends.
        """
        task: Task | None = None
        groups: Sequence[str] | None = None
        try:
            slot.start()
            while (task := self._queue.take(groups)) is not None:
                before = slot.starts
                same = self._do(task, slot) and slot.starts == before
                groups = kept_after(task, groups if same else None)
        except CannotStart as failure:
            self._give_up(task, str(failure))
        except Exception as error:  # whoever waits must get a reply
            self._give_up(task, f"{type(error).__name__}: {error}")
        finally:
            slot.end()

    def _do(self, task: Task, slot: Transport) -> bool:
        """Does a job; returns whether there was a reply, so that what replied is still there."""
        try:
            task.future.set_result(slot.do(task.job))
            return True
        except CannotStart:
            raise
        except (ProcessLost, StageOverdue) as failure:
            task.future.set_exception(failure)
        except SlotLost as loss:
            if task.lost:
                task.future.set_exception(ProcessLost(f"{task.lost}; another one: {loss}"))
            elif not self._queue.put_back(replace(task, lost=str(loss))):
                task.future.set_exception(ProcessLost("the pool is closed"))
        except Exception as error:  # whoever waits must get it
            task.future.set_exception(PoolFailed(f"The pool failed: {type(error).__name__}: {error}"))
            slot.end()  # it may still send a reply, which would be taken for the next job's
        return False

    def _give_up(self, task: Task | None, why: str) -> None:
        """A slot in which nothing starts leaves its job to the others, and takes no more."""
        with self._lock:
            self._working -= 1
            if self._over is not None:
                if task is not None:
                    task.future.set_exception(self._over())
                return
            self._queue.give_up(task)
            self._use_another()
            if self._working:
                return
            if any(slot.starts for slot in self._slots):
                self._stop(lambda: ProcessLost(f"no other one starts: {why}"))
            else:
                self._stop(lambda: PoolFailed(f"A judging process cannot start: {why}"))

    def _stop(self, why: Callable[[], Exception]) -> None:
        with self._lock:
            self._over = self._over or why
            for task in self._queue.close():
                task.future.set_exception(self._over())

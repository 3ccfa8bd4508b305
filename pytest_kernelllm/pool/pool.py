"""A pool of processes that do jobs: spread over GPUs, each taking the next job when it is free, replaced when they die.

The pool does not know what a job is: requests and replies are JSON. No job is lost with a process or a slot.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from typing import Protocol, Self

from pytest_kernelllm.pool.job_queue import JobQueue
from pytest_kernelllm.pool.jobs import Answer, Engine, PoolFailed, PoolJob, ProcessLost, Task
from pytest_kernelllm.pool.pool_process import Reply, Slot, StageOverdue
from pytest_kernelllm.pool.slot_runner import SlotRunner


class Runner(Protocol):
    """What does the jobs of one slot."""

    started: bool
    """Whether it has ever been ready for a job."""

    def work(self, tasks: JobQueue[Task], give_up: Callable[[Task | None, str], None]) -> None:
        """Does jobs until the queue is closed.

        Or until nothing starts here: then ``give_up`` gets the job that is left, None where it never took one, and why.
        """

    def close(self) -> None:
        """From any thread: asks ``work`` to end."""


class Pool(Engine):
    """Does jobs in slots, each of which is begun when there is enough to do for it."""

    def __init__(self, runners: Sequence[Runner], limit: int = sys.maxsize) -> None:
        """Starts nothing yet.

        Args:
            runners: one for each slot.
            limit: slots that are used at once, at most.
        """
        self._runners = list(runners)
        self._limit = limit
        self._unused = deque(self._runners)
        self._queue: JobQueue[Task] = JobQueue(self.slots)
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()
        self._working = 0
        """Slots that take jobs."""
        self._over: Callable[[], Exception] | None = None
        """Once nothing more is done: why not."""

    @property
    def slots(self) -> int:
        """How many jobs are done side by side, at most."""
        return min(len(self._runners), self._limit)

    def __enter__(self) -> Self:
        """Starts nothing yet."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Ends what was started in the slots; jobs that are not done fail with ``ProcessLost``."""
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

    def _add(self, runner: Runner) -> None:
        """Uses one more slot, at once if there is enough to do."""
        with self._lock:
            if self._over is None:
                self._runners.append(runner)
                self._unused.append(runner)
                self._resize()
                if self._queue.lacks_takers():
                    self._use_another()

    def _resize(self) -> None:
        self._queue.resize(min(self._working + len(self._unused), self._limit))

    def _use_another(self) -> None:
        if self._unused and self._working < self._limit:
            self._working += 1
            self._queue.announce()
            # Daemons: waiting for a process must not hold up a command that is interrupted twice.
            thread = threading.Thread(
                target=self._unused.popleft().work, args=(self._queue, self._give_up), daemon=True
            )
            self._threads.append(thread)
            thread.start()

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
            self._resize()
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


class ProcessPool(Pool):
    """One process in each slot of this machine. A job whose process ends is done once more, as the first one of a fresh process."""

    def __init__(self, module: str, slots: Sequence[Slot], stage_seconds: float = math.inf) -> None:
        """Starts nothing yet.

        Args:
            module: run as ``python -m module FD``, at most once at a time for each slot.
            slots: places for processes.
            stage_seconds: how long a process may stay in a stage that it reports.
        """
        super().__init__([SlotRunner(module, slot, stage_seconds) for slot in slots])

"""A pool of processes that do jobs: spread over GPUs, each taking the next job when it is free, replaced when they die.

The pool does not know what a job is: requests and replies are JSON. No job is lost with a process or a slot.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from pytest_kernelllm.judge.shared.channel import ChannelClosed, ChannelError
from pytest_kernelllm.pool.pool_process import PoolProcess, Reply, Slot, StageOverdue

UNFIT = "unfit"
"""Key of the reply by which a process asks to be replaced before it does this job."""

STARTS, RESTARTS = 2, 6
"""How often a process is started in a slot before the slot is given up: at first, and after one has started there.

Some may be killed from outside; and where one has started, others probably can."""


PATIENT = 2
"""Jobs of one group that wait for the process that does this group, before another process is started to help.

Starting one, and preparing the group in it, costs as much as some jobs."""


@dataclass(frozen=True)
class PoolJob:
    """One thing to do."""

    name: str
    """For the caller."""
    group: str
    """Jobs of one group go to the same process while another process has something else to do."""
    request: dict[str, Any]
    """The message to the process."""


class ProcessLost(Exception):
    """No process lives to reply: two ended, or none starts any more; the text says how."""


class PoolFailed(RuntimeError):
    """No process can be started; the text says why."""


class CannotStart(Exception):
    """No process starts in a slot; the text says why."""


Answer = Reply | ProcessLost | StageOverdue


class Engine(Protocol):
    """What does jobs: the pool of this machine, or another engine in its place. Close it with ``with``."""

    @property
    def slots(self) -> int:
        """How many jobs are done side by side, at most."""

    def __enter__(self) -> Self:
        """Gets ready to take jobs.

        Raises:
            PoolFailed: it cannot be reached.
        """

    def __exit__(self, *exc: object) -> None:
        """Ends everything; jobs that are not done fail with ``ProcessLost``."""

    def submit(self, job: PoolJob) -> Future[Reply]:
        """Does a job as soon as there is room.

        The future raises ``ProcessLost`` or ``StageOverdue`` for what kept the job from a reply, and ``PoolFailed`` where no job
        can be done.
        """

    def run(self, jobs: Sequence[PoolJob]) -> Iterator[tuple[PoolJob, Answer]]:
        """Does all jobs; yields each with its reply, or with what kept it from having one, as they are done.

        Raises:
            PoolFailed: no job can be done.
        """


class Grouped(Protocol):
    """What a queue holds."""

    @property
    def group(self) -> str:
        """``PoolJob.group``"""


T = TypeVar("T", bound=Grouped)


class JobQueue(Generic[T]):
    """The jobs that are left. Every job is taken once, or again after it was put back. Thread-safe."""

    def __init__(self) -> None:
        """Holds nothing yet."""
        self._changed = threading.Condition()
        self._new: dict[str, deque[T]] = {}
        """Groups that no process has begun, in the order in which they came."""
        self._begun: dict[str, deque[T]] = {}
        self._known: set[str] = set()
        """Groups that some process has begun, with or without jobs left."""
        self._waiting: Counter[str] = Counter()
        """How many wait for a job, by the group of their last one."""
        self._coming = 0
        """How many will take their first job."""
        self._closed = False

    def put(self, job: T) -> None:
        """Adds a job."""
        with self._changed:
            groups = self._begun if job.group in self._known else self._new
            groups.setdefault(job.group, deque()).append(job)
            self._changed.notify_all()

    def lacks_takers(self) -> bool:
        """Returns whether those who take jobs are too few."""
        with self._changed:
            needed = sum(max(1, len(jobs) - PATIENT) for jobs in self._new.values())
            needed += sum(max(0, len(jobs) - PATIENT) for jobs in self._begun.values())
            return needed > self._waiting.total() + self._coming

    def announce(self) -> None:
        """Counts on somebody who has not taken a job yet, and will take the first one with the group None."""
        with self._changed:
            self._coming += 1

    def withdraw(self) -> None:
        """Counts no more on somebody who was announced."""
        with self._changed:
            self._coming -= 1

    def take(self, group: str | None) -> T | None:
        """Waits for the next job for a process whose last one was of ``group``; None once the queue is closed.

        One of the same group; else of a group that no process has begun; else of the group with most jobs left, unless a process
        whose last job was of that group is free.
        """
        with self._changed:
            if group is None:
                self._coming -= 1
            group = group or ""
            self._waiting[group] += 1
            try:
                while not self._closed:
                    if (job := self._next(group)) is not None:
                        return job
                    self._changed.wait()
                return None
            finally:
                self._waiting[group] -= 1
                self._changed.notify_all()

    def put_back(self, job: T) -> bool:
        """Takes back a job that was taken and not done; returns False where the queue is closed and does not take it."""
        with self._changed:
            if not self._closed:
                self._begun.setdefault(job.group, deque()).appendleft(job)
                self._changed.notify_all()
            return not self._closed

    def close(self) -> list[T]:
        """Gives no more jobs to anyone; returns those that are left."""
        with self._changed:
            self._closed = True
            left = [job for groups in (self._begun, self._new) for jobs in groups.values() for job in jobs]
            self._begun, self._new = {}, {}
            self._changed.notify_all()
            return left

    def _next(self, group: str) -> T | None:
        if group not in self._begun:
            if self._new:
                group = next(iter(self._new))
                self._known.add(group)
                self._begun[group] = self._new.pop(group)
            else:
                others = [name for name in self._begun if not self._waiting[name]]
                if not others:
                    return None
                group = max(others, key=lambda name: len(self._begun[name]))
        jobs = self._begun[group]
        job = jobs.popleft()
        if not jobs:
            del self._begun[group]
        return job


@dataclass(frozen=True)
class Task:
    """A job, and where its reply is awaited."""

    job: PoolJob
    future: Future[Reply] = field(default_factory=Future)
    lost: str = ""
    """How whoever did it first was lost, where it was put back to be done once more."""

    @property
    def group(self) -> str:
        """``PoolJob.group``"""
        return self.job.group


class Runner(Protocol):
    """What does the jobs of one slot."""

    started: bool
    """Whether it has ever been ready for a job."""

    def work(self, tasks: JobQueue[Task], give_up: Callable[[Task | None, str], None]) -> None:
        """Does jobs until the queue is closed; or until nothing starts here, then ``give_up`` gets the job that is left, and why."""

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

    def submit(self, job: PoolJob) -> Future[Reply]:
        """Does a job as soon as a slot is free; starts another slot where there is enough to do.

        A slot in which nothing starts leaves its job to the others. The future raises ``ProcessLost`` or ``StageOverdue`` for what
        kept the job from a reply, and ``PoolFailed`` where nothing starts in any slot, from the beginning.
        """
        task = Task(job)
        with self._lock:
            if self._over is not None:
                task.future.set_exception(self._over())
            else:
                self._queue.put(task)
                if self._queue.lacks_takers():
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
                if self._queue.lacks_takers():
                    self._use_another()

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
            if task is None:
                self._queue.withdraw()
            else:
                self._queue.put_back(task)
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
        group = None
        while (task := tasks.take(group)) is not None:
            group = task.group
            try:
                task.future.set_result(self.do(task.job))
            except (ProcessLost, StageOverdue) as failure:
                task.future.set_exception(failure)
            except CannotStart as failure:
                give_up(task, str(failure))
                return
            except Exception as error:  # whoever waits must get it
                task.future.set_exception(PoolFailed(f"The pool failed: {type(error).__name__}: {error}"))
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

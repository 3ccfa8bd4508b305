"""A pool of processes that do jobs: spread over GPUs, each taking the next job when it is free, replaced when they die.

The pool does not know what a job is: requests and replies are JSON. No job is lost with a process or a slot.
"""

from __future__ import annotations

import math
import queue
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_kernelllm.judge.shared.channel import ChannelClosed, ChannelError
from pytest_kernelllm.verify.pool_process import PoolProcess, Reply, Slot, StageOverdue

UNFIT = "unfit"
"""Key of the reply by which a process asks to be replaced before it does this job."""

STARTS, RESTARTS = 2, 6
"""How often a process is started in a slot before the slot is given up: at first, and after one has started there.

Some may be killed from outside; and where one has started, others probably can."""


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


class _CannotStart(Exception):
    """No process starts in a slot; the text says why."""


Answer = Reply | ProcessLost | StageOverdue


class JobQueue:
    """The jobs that are left. Every job is taken once, or again after it was put back. Thread-safe."""

    def __init__(self, jobs: Sequence[PoolJob]) -> None:
        """Holds all of ``jobs``; groups in the order in which they first appear."""
        self._lock = threading.Lock()
        self._new: dict[str, deque[PoolJob]] = {}
        """Groups that no process has begun."""
        self._begun: dict[str, deque[PoolJob]] = {}
        for job in jobs:
            self._new.setdefault(job.group, deque()).append(job)

    def take(self, group: str) -> PoolJob | None:
        """Takes the next job for a process whose last one was of ``group``; None when all are taken.

        One of the same group; else of a group that no process has begun; else of the group with most jobs left.
        """
        with self._lock:
            if group not in self._begun:
                if self._new:
                    group = next(iter(self._new))
                    self._begun[group] = self._new.pop(group)
                elif self._begun:
                    group = max(self._begun, key=lambda name: len(self._begun[name]))
                else:
                    return None
            jobs = self._begun[group]
            job = jobs.popleft()
            if not jobs:
                del self._begun[group]
            return job

    def put_back(self, job: PoolJob) -> None:
        """Takes back a job that was taken and not done."""
        with self._lock:
            self._begun.setdefault(job.group, deque()).appendleft(job)

    def __bool__(self) -> bool:
        """Whether there are jobs to take."""
        with self._lock:
            return bool(self._new or self._begun)


class ProcessPool:
    """One process in each slot. Close it with ``with``; that ends them all."""

    def __init__(self, module: str, slots: Sequence[Slot], stage_seconds: float = math.inf) -> None:
        """Starts nothing yet.

        Args:
            module: run as ``python -m module FD``, once for each slot, when there is something to do.
            slots: places for processes.
            stage_seconds: how long a process may stay in a stage that it reports.
        """
        self._runners = [_SlotRunner(module, slot, stage_seconds) for slot in slots]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> ProcessPool:
        """Starts nothing yet."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Ends all processes; they end their own children."""
        for runner in self._runners:
            runner.close()
        for thread in self._threads:
            thread.join()

    def run(self, jobs: Sequence[PoolJob]) -> Iterator[tuple[PoolJob, Answer]]:
        """Does all jobs; yields each with its reply, or with what kept it from having one, as they are done.

        A job whose process ends is done once more, as the first one of a fresh process. A slot in which no process
        starts leaves its job to the others.

        Raises:
            PoolFailed: no process starts in any slot, from the beginning; or the pool itself failed.
        """
        left = JobQueue(jobs)
        events: _Events = queue.SimpleQueue()
        idle = self._runners[: len(jobs)]
        working, unanswered = 0, len(jobs)
        why = ""
        while unanswered:
            while idle and left:
                self._work(idle.pop(0), left, events)
                working += 1
            if not working:
                yield from self._given_up(left, why)
                return
            event = events.get()
            match event:
                case _Answered(job, answer):
                    unanswered -= 1
                    yield job, answer
                case _Idle(runner):
                    working -= 1
                    idle.append(runner)
                case _GivenUp(job, why):
                    working -= 1
                    left.put_back(job)
                case PoolFailed():
                    raise event

    def _work(self, runner: _SlotRunner, left: JobQueue, events: _Events) -> None:
        # Daemons: waiting for a process must not hold up a command that is interrupted twice.
        thread = threading.Thread(target=runner.work, args=(left, events), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _given_up(self, left: JobQueue, why: str) -> Iterator[tuple[PoolJob, ProcessLost]]:
        """Yields all jobs that are left when no slot is."""
        if not any(runner.started for runner in self._runners):
            raise PoolFailed(f"A judging process cannot start: {why}")
        while (job := left.take("")) is not None:
            yield job, ProcessLost(f"no other one starts: {why}")


@dataclass(frozen=True)
class _Answered:
    """A job is done, or given up."""

    job: PoolJob
    answer: Answer


@dataclass(frozen=True)
class _Idle:
    """A slot has nothing to do, and no process any more."""

    runner: _SlotRunner


@dataclass(frozen=True)
class _GivenUp:
    """In a slot no process starts. It leaves a job, and does no more."""

    job: PoolJob
    why: str


_Events = queue.SimpleQueue[_Answered | _Idle | _GivenUp | PoolFailed]


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

    def work(self, left: JobQueue, events: _Events) -> None:
        """Does jobs until none is left."""
        group = ""
        try:
            while not self._closed and (job := left.take(group)) is not None:
                group = job.group
                try:
                    events.put(_Answered(job, self._do(job)))
                except (ProcessLost, StageOverdue) as failure:
                    events.put(_Answered(job, failure))
                except _CannotStart as failure:
                    events.put(_GivenUp(job, str(failure)))
                    return
            self._end()
            events.put(_Idle(self))
        except Exception as error:  # whoever waits must get it
            events.put(PoolFailed(f"The pool failed: {type(error).__name__}: {error}"))

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

"""The jobs that wait for a process, and which of them a process takes next."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

PATIENT = 2
"""Jobs of one group that wait for the process that does this group, before another process is started to help.

Starting one, and preparing the group in it, costs as much as some jobs."""


class Queued(Protocol):
    """What a queue holds."""

    @property
    def group(self) -> str:
        """``PoolJob.group``"""


T = TypeVar("T", bound=Queued)


class JobQueue(Generic[T]):
    """The jobs that are left. Every job is taken once, or again after it was given up. Thread-safe."""

    def __init__(self) -> None:
        """Makes an empty queue."""
        self._changed = threading.Condition()  # whose lock one thread may take again
        self._jobs: dict[str, deque[T]] = {}
        """Those that are left, by group, in the order in which the groups came."""
        self._begun: set[str] = set()
        """Groups that some process has begun, with or without jobs left."""
        self._free = 0
        """Number of processes that wait for a job."""
        self._waiting: Counter[str] = Counter()
        """Number of processes that keep each group."""
        self._held: Counter[str] = Counter()
        """How many do a job, by its group."""
        self._coming = 0
        """Number of processes that are starting."""
        self._closed = False

    def put(self, job: T) -> bool:
        """Adds a job; returns whether those who take jobs are too few."""
        with self._changed:
            self._jobs.setdefault(job.group, deque()).append(job)
            self._changed.notify_all()
            return self.lacks_takers()

    def lacks_takers(self) -> bool:
        """Returns whether those who take jobs are too few."""
        with self._changed:
            return sum(map(self._needed, self._jobs)) > self._free + self._coming

    def announce(self) -> None:
        """States that one more process will take jobs; its first call of ``take`` names no groups."""
        with self._changed:
            self._coming += 1

    def take(self, groups: Sequence[str] | None) -> T | None:
        """Waits for a process's next job; None once the queue is closed.

        One of a group that the process keeps; else of one that no process has begun; else of the group with most jobs left, unless
        a process that keeps that group is free.

        Args:
            groups: what the process keeps prepared, the group of its last job first; None before its first job.
        """
        with self._changed:
            if groups is None:
                self._coming -= 1
                groups = ()
            elif groups:
                self._held[groups[0]] -= 1
            self._free += 1
            self._waiting.update(groups)
            self._changed.notify_all()
            try:
                while not self._closed:
                    if (job := self._next(groups)) is not None:
                        self._held[job.group] += 1
                        return job
                    self._changed.wait()
                return None
            finally:
                self._free -= 1
                self._waiting.subtract(groups)
                self._changed.notify_all()

    def put_back(self, job: T) -> bool:
        """Takes back a job that was not done, from a slot that will take another; returns False where the queue is closed."""
        with self._changed:
            if not self._closed:
                self._jobs.setdefault(job.group, deque()).appendleft(job)
                self._changed.notify_all()
            return not self._closed

    def give_up(self, job: T | None) -> None:
        """Puts a job back that was not done, because its slot ends. None: the slot never took one."""
        with self._changed:
            if job is None:
                self._coming -= 1
            else:
                self._held[job.group] -= 1
                self._jobs.setdefault(job.group, deque()).appendleft(job)
            self._changed.notify_all()

    def close(self) -> list[T]:
        """Closes the queue, so that ``take`` returns None; returns the jobs that are left."""
        with self._changed:
            self._closed = True
            left = [job for jobs in self._jobs.values() for job in jobs]
            self._jobs = {}
            self._changed.notify_all()
            return left

    def _needed(self, group: str) -> int:
        """How many more should take jobs of a group."""
        return max(len(self._jobs[group]) - PATIENT, 0 if self._held[group] else 1)

    def _next(self, groups: Sequence[str]) -> T | None:
        kept = [name for name in groups if name in self._jobs and name in self._begun]
        new = [name for name in self._jobs if name not in self._begun]
        others = [name for name in self._jobs if name in self._begun and not self._waiting[name]]
        if not (kept or new or others):
            return None
        group = (kept or new or [max(others, key=lambda name: len(self._jobs[name]))])[0]
        self._begun.add(group)
        job = self._jobs[group].popleft()
        if not self._jobs[group]:
            del self._jobs[group]
        return job

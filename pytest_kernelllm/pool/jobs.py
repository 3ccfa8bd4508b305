"""What an engine does: jobs. The engine of one machine is the pool of processes; another may take its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from pytest_kernelllm.pool.pool_process import Reply, StageOverdue

KEPT_GROUPS = 3
"""Groups that a process keeps prepared: those of its last jobs."""


@dataclass(frozen=True)
class PoolJob:
    """One thing to do."""

    name: str
    """For the caller."""
    group: str
    """Jobs of one group go to a process that keeps it, while another process has something else to do."""
    request: dict[str, Any]
    """The message to the process."""
    can_wait: bool = False
    """Whether it leaves one slot free for the jobs of the preferred group, see ``Engine.prefer``."""


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

    @property
    def can_wait(self) -> bool:
        """``PoolJob.can_wait``"""
        return self.job.can_wait


def kept_after(task: Task, groups: Sequence[str] | None) -> Sequence[str]:
    """Returns what a process keeps after a task, the task's group first; ``groups`` is what it kept before."""
    return [*dict.fromkeys((task.group, *(groups or ())))][:KEPT_GROUPS]


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

    def prefer(self, group: str) -> None:
        """Prefers a group from now on: other groups' jobs that can wait leave one slot free for its jobs."""

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

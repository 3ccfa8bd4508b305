"""Does the jobs of one slot of a Ray cluster, from this machine: starts the actor there, waits for it, and replaces it when lost."""

from __future__ import annotations

import contextlib
import importlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_kernelllm.discover.files import source_files
from pytest_kernelllm.pool.job_queue import JobQueue
from pytest_kernelllm.pool.jobs import CannotStart, PoolJob, ProcessLost, Task, kept_after
from pytest_kernelllm.pool.messages import Handshake, request_of
from pytest_kernelllm.pool.pool_process import StageOverdue
from pytest_kernelllm.pool.ray.actor import JudgingActor
from pytest_kernelllm.pool.ray.connection import reason
from pytest_kernelllm.pool.ray.nodes import RaySlot
from pytest_kernelllm.pool.ray.versions import NodeChecks

START_SECONDS = 300.0
"""How long an actor may take to start, for example because others use the node's CPUs or GPUs."""

STARTS = 2
"""How often an actor is started before its slot is given up."""

LOSSES = 3
"""Actors that may be lost in a slot before it is given up."""

POLL_SECONDS = 0.5
"""How often a thread that waits for an actor looks whether the engine is being closed."""

CLOSE_SECONDS = 20.0
"""How long an actor has for ending its process: a little more than ``pool_process.GRACE``."""


@dataclass(frozen=True)
class Cluster:
    """What all slots of a cluster have in common."""

    ray: Any
    """The module, connected."""
    module: str
    """The judging process's, as for ``ProcessPool``."""
    handshake: Handshake
    """With the environment that all nodes must have."""
    stage_seconds: float
    """How long a process may stay in a stage that it reports."""
    threads: int
    """That each judging process should use."""
    checks: NodeChecks
    say: Callable[[str], None]
    """Takes a sentence about an actor that was lost."""


class ActorRunner:
    """Does jobs in one slot. Its one thread starts the actor, talks to it and ends it."""

    def __init__(self, cluster: Cluster, slot: RaySlot) -> None:
        """Starts nothing yet."""
        self.started = False
        """Whether an actor has started here that can be used."""
        self._cluster = cluster
        self._slot = slot
        self._actor: Any = None
        self._losses = 0
        self._closed = threading.Event()

    def work(self, tasks: JobQueue[Task], give_up: Callable[[Task | None, str], None]) -> None:
        """Does jobs until the queue is closed, or no actor starts any more. One starts before the first job is taken."""
        task = groups = None
        try:
            self._start()
            while (task := tasks.take(groups)) is not None:
                before = self._actor
                self._start()
                if (again := self._do(task)) and not tasks.put_back(again):
                    again.future.set_exception(ProcessLost("the engine is closed"))
                groups = kept_after(task, groups if self._actor is before else None)
        except CannotStart as failure:
            give_up(task, str(failure))
        except Exception as error:  # whoever waits must get a reply
            give_up(task, f"on node {self._slot.name}, {type(error).__name__}: {error}")
        finally:
            self._end()

    def close(self) -> None:
        """From any thread: waits for nothing more, and starts nothing more."""
        self._closed.set()

    def _do(self, task: Task) -> Task | None:
        """Does a job; returns it where its actor was lost, and another one should do it once more."""
        try:
            result = self._result(self._actor.do.remote(task.job, _files(task.job)))
        except CannotStart:
            raise
        except Exception as error:  # of many kinds: Ray's own, its client's, gRPC's
            why = self._lose(error)
            if not task.lost:
                self._cluster.say(f"A judging actor was lost: {why}; its job is done once more by another.")
                return replace(task, lost=why)
            task.future.set_exception(ProcessLost(f"{task.lost}; another one: {why}"))
            return None
        match result:
            case {"reply": reply}:
                task.future.set_result(reply)
            case {"lost": text}:
                task.future.set_exception(ProcessLost(text))
            case {"overdue": text}:
                task.future.set_exception(StageOverdue(text))
            case {"unable": text}:
                raise CannotStart(f"on node {self._slot.name}, {text}")
        return None

    def _start(self) -> None:
        """Starts an actor, if there is none, where its node has what verdicts depend on.

        Raises:
            CannotStart: none starts, or none may.
        """
        if self._actor is not None:
            return
        why = f"on node {self._slot.name}, {self._losses} actors were lost"
        for _ in range(STARTS if self._losses < LOSSES else 0):
            self._cluster.checks.raise_if_refused(self._slot)
            try:
                self._actor = self._new_actor()
                found = self._result(self._actor.versions.remote(), START_SECONDS)
            except CannotStart:
                raise
            except TimeoutError:
                self._kill()
                text = f"its CPUs or GPUs were taken for {START_SECONDS:g} s"
                raise self._cluster.checks.refused(self._slot, text) from None
            except Exception as error:  # of many kinds, as above
                why = self._lose(error)
                if getattr(error, "actor_init_failed", False):
                    text = f"no judge starts there: {reason(error)}"
                    raise self._cluster.checks.refused(self._slot, text) from None
            else:
                self._cluster.checks.check(self._slot, found)
                self.started = True
                return
        raise CannotStart(why)

    def _new_actor(self) -> Any:
        scheduling = importlib.import_module("ray.util.scheduling_strategies")
        remote = self._cluster.ray.remote(JudgingActor).options(
            num_cpus=self._slot.cpus,
            num_gpus=self._slot.gpus,
            max_concurrency=2,  # so that it can be closed while it does a job
            scheduling_strategy=scheduling.NodeAffinitySchedulingStrategy(self._slot.node, soft=False),
        )
        cluster = self._cluster
        return remote.remote(
            cluster.module, cluster.handshake.to_json(), cluster.stage_seconds, cluster.threads
        )

    def _result(self, call: Any, seconds: float = math.inf) -> Any:
        """Waits for what an actor returns.

        Raises:
            CannotStart: the engine is being closed.
            TimeoutError: it took longer than ``seconds``.
            Exception: the actor or the connection to it was lost.
        """
        end = time.monotonic() + seconds
        while not self._cluster.ray.wait([call], timeout=POLL_SECONDS)[0]:
            if self._closed.is_set():
                raise CannotStart("the engine is being closed")
            if time.monotonic() > end:
                raise TimeoutError
        return self._cluster.ray.get(call)

    def _lose(self, error: Exception) -> str:
        """Returns how an actor was lost."""
        self._losses += 1
        self._kill()
        return f"on node {self._slot.name}, {reason(error)}"

    def _end(self) -> None:
        """Has the actor end its process, and ends it."""
        if self._actor is not None:
            with contextlib.suppress(Exception):  # the node or the cluster may be gone, and with it the actor
                self._cluster.ray.wait([self._actor.close.remote()], timeout=CLOSE_SECONDS)
            self._kill()

    def _kill(self) -> None:
        actor, self._actor = self._actor, None
        if actor is None:
            return
        with contextlib.suppress(Exception):  # as above
            self._cluster.ray.kill(actor)


def _files(job: PoolJob) -> dict[Path, bytes]:
    """The files of a job's target; none where they cannot be read any more, which its verdict then says."""
    request = request_of(job.request)
    try:
        return source_files(Path(request.root), request.target)
    except (OSError, RecursionError, SyntaxError, ValueError):
        return {}

"""Takes jobs to one slot of a Ray cluster: starts the actor there, waits for it, and replaces it when it is lost."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelllm_judge.core.targets import Target
from kernelllm_runtime.source.changes import changes_of
from kernelllm_runtime.source.resolve import ProjectSources
from pytest_kernelllm.beside.cluster.actor import JudgingActor
from pytest_kernelllm.beside.cluster.connection import reason
from pytest_kernelllm.beside.cluster.nodes import RaySlot
from pytest_kernelllm.beside.cluster.versions import NodeChecks
from pytest_kernelllm.pool.jobs import CannotStart, PoolJob, SlotLost
from pytest_kernelllm.pool.messages import Handshake, request_of
from pytest_kernelllm.pool.pool_process import Reply


def source_files(root: Path, target: Target) -> dict[Path, bytes]:
    """Returns a target's file, the project's files that it imports, and those that they import, by absolute path.

    Imports anywhere in a file count, also those in functions. Each file of a package brings the package's
    ``__init__.py``. Installed packages and data files are not included.

    Raises:
        OSError: a file cannot be read.
        SyntaxError, ValueError: the target's file is not Python.
    """
    project = ProjectSources(root.absolute())
    module = project.parse(Path(os.path.normpath(project.root / target.path)))
    kernel = project.find(module, 0, target.kernel.split(".")) if target.kernel else None
    starts = filter(None, (module, kernel))
    files = {each.path for start in starts for each in changes_of(project).loaded(start)}
    return {file: file.read_bytes() for file in sorted(files)}


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
    """The judging process's, as for ``ProcessSlot``."""
    handshake: Handshake
    """With the environment that all nodes must have."""
    stage_seconds: float
    """How long a process may stay in a stage that it reports."""
    threads: int
    """That each judging process should use."""
    checks: NodeChecks
    say: Callable[[str], None]
    """Takes a sentence about an actor that was lost."""


class ActorSlot:
    """A ``Transport`` to an actor. A job whose actor is lost is done once more in another slot."""

    def __init__(self, cluster: Cluster, slot: RaySlot) -> None:
        """Makes a slot; ``start`` starts its actor."""
        self.starts = 0
        self._cluster = cluster
        self._slot = slot
        self._actor: Any = None
        self._losses = 0
        self._closed = threading.Event()

    def start(self) -> None:
        """Starts an actor, unless one is there, where its node has what verdicts depend on."""
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
            except Exception as error:  # of many kinds: Ray's own, its client's, gRPC's
                why = self._lose(error)
                if getattr(error, "actor_init_failed", False):
                    text = f"no judge starts there: {reason(error)}"
                    raise self._cluster.checks.refused(self._slot, text) from None
            else:
                self._cluster.checks.check(self._slot, found)
                self.starts += 1
                return
        raise CannotStart(why)

    def do(self, job: PoolJob) -> Reply:
        """Does one job by the actor here, which is started or replaced where needed."""
        self.start()
        try:
            result = self._result(self._actor.do.remote(replace(job, parts=None), _files(job)))
        except CannotStart:
            raise
        except Exception as error:  # of many kinds, as above
            why = self._lose(error)
            self._cluster.say(f"A judging actor was lost: {why}.")
            raise SlotLost(why) from None
        if isinstance(result, CannotStart):
            raise CannotStart(f"on node {self._slot.name}, {result}")
        if isinstance(result, Exception):
            raise result
        reply: Reply = result
        return reply

    def end(self) -> None:
        """Has the actor end its process, and ends it."""
        if self._actor is not None:
            with contextlib.suppress(Exception):  # the node or the cluster may be gone, and with it the actor
                self._cluster.ray.wait([self._actor.close.remote()], timeout=CLOSE_SECONDS)
            self._kill()

    def close(self, seconds: float = math.inf) -> None:
        """Waits for nothing more, and starts nothing more."""
        self._closed.set()

    def _new_actor(self) -> Any:
        cluster, slot = self._cluster, self._slot
        scheduling = importlib.import_module("ray.util.scheduling_strategies")
        remote = cluster.ray.remote(JudgingActor).options(
            num_cpus=slot.cpus,
            num_gpus=slot.gpus,
            max_concurrency=2,  # so that it can be closed while it does a job
            scheduling_strategy=scheduling.NodeAffinitySchedulingStrategy(slot.node, soft=False),
        )
        name = f"{cluster.handshake.name} {slot.number + 1} on {slot.name}"
        handshake = replace(cluster.handshake, name=name).to_json()
        return remote.remote(cluster.module, handshake, cluster.stage_seconds, cluster.threads)

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

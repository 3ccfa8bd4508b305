"""Does jobs on the nodes of a Ray cluster, in place of this machine's pool: one actor in each slot.

A job is done once more by another actor where its first one is lost with its node. Ray is imported when the engine is entered.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from kernelllm_judge.core.records import Environment
from kernelllm_judge.environment import find_environment
from pytest_kernelllm.pool.jobs import PoolFailed
from pytest_kernelllm.pool.messages import Handshake
from pytest_kernelllm.pool.pool import Pool
from pytest_kernelllm.pool.ray.connection import connected, reason
from pytest_kernelllm.pool.ray.nodes import Nodes, RaySlot
from pytest_kernelllm.pool.ray.runner import START_SECONDS, ActorRunner, Cluster
from pytest_kernelllm.pool.ray.versions import NodeChecks

LOOK_SECONDS = 2.0
"""How often nodes are looked for that joined."""


def _say(text: str) -> None:
    print(f"kernelllm: {text}", file=sys.stderr)


class RayEngine(Pool):
    """One judging actor in each slot of a cluster, also of nodes that join. Close it with ``with``; that ends them all."""

    def __init__(
        self,
        address: str,
        module: str,
        handshake: Handshake,
        stage_seconds: float,
        *,
        limit: int,
        per_gpu: int,
        xdist: tuple[int, int] = (0, 1),
        say: Callable[[str], None] = _say,
    ) -> None:
        """Connects to nothing yet.

        Args:
            address: ``auto`` for the cluster that this machine belongs to, or ``ray://HOST:PORT``.
            module: the judging process's, as for ``ProcessPool``.
            handshake: with the environment that nodes must have.
            stage_seconds: how long a process may stay in a stage that it reports.
            limit: slots that are used at once by all pytest-xdist workers together, at most; 0 for all.
            per_gpu: slots of a GPU at most, or of a node without one.
            xdist: which of pytest-xdist's workers this is, and how many there are.
            say: takes sentences about nodes that are not used or lost.
        """
        worker, workers = xdist
        own = max(1, (worker + 1) * limit // workers - worker * limit // workers) if limit else sys.maxsize
        super().__init__([], own)
        self._address = address
        self._module = module
        self._handshake = handshake
        self._stage_seconds = stage_seconds
        self._all = limit or sys.maxsize
        self._per_gpu = per_gpu
        self._xdist = xdist
        self._say = say
        self._opened = contextlib.ExitStack()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        """Connects to the cluster.

        Raises:
            PoolFailed: Ray is not installed, there is no cluster, or it has no CPU or GPU to judge on.
        """
        environment, (worker, workers) = self._handshake.environment, self._xdist
        with contextlib.ExitStack() as opening:
            ray = opening.enter_context(connected(self._address))
            cuda = environment.device == "cuda"
            nodes = Nodes(
                ray, cuda=cuda, per_gpu=self._per_gpu, limit=self._all, worker=worker, workers=workers
            )
            nodes.check()
            checks = NodeChecks(environment, self._say)
            cluster = Cluster(
                ray, self._module, self._handshake, self._stage_seconds, nodes.threads(), checks, self._say
            )
            slots = nodes.slots()
            for slot in slots:
                self._add(ActorRunner(cluster, slot))
            looking = threading.Thread(target=self._look, args=(nodes, cluster, set(slots)), daemon=True)
            looking.start()
            opening.callback(looking.join)
            self._opened = opening.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        """Ends all actors and leaves the cluster; jobs that are not done fail with ``ProcessLost``."""
        self._ended.set()
        super().__exit__(*exc)
        self._opened.close()

    def _look(self, nodes: Nodes, cluster: Cluster, known: set[RaySlot]) -> None:
        """Uses the slots of nodes that join."""
        while not self._ended.wait(LOOK_SECONDS):
            try:
                slots = nodes.slots()
            except Exception:  # the cluster is gone, which those who wait for their actors report
                return
            for slot in slots:
                if slot not in known:
                    known.add(slot)
                    self._add(ActorRunner(cluster, slot))


def with_gpu_of(address: str, environment: Environment) -> Environment:
    """Returns an environment with the GPU of a cluster, for a machine that has none.

    Raises:
        PoolFailed: Ray is not installed, there is no cluster, or no GPU in it.
    """
    with connected(address) as ray:
        Nodes(ray, cuda=True, per_gpu=1, limit=1).check()
        look = ray.remote(find_environment).options(num_cpus=0, num_gpus=0.01)
        try:
            found: Environment = ray.get(look.remote("cuda", environment.arch), timeout=START_SECONDS)
        except Exception as error:  # of many kinds: Ray's own, its client's, gRPC's
            raise PoolFailed(f"The Ray cluster does not say which GPUs it has: {reason(error)}.") from None
    if not found.gpu:
        raise PoolFailed("NVML finds no GPU on the nodes of the Ray cluster that have one for Ray.")
    return replace(environment, gpu=found.gpu, driver=found.driver, arch=found.arch)

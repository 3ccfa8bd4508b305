"""Does jobs on the nodes of a Ray cluster, in place of this machine's pool: one actor in each slot.

Ray is imported when the engine is entered. ``pool.engine`` finds this module by its name.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import replace
from typing import Self

from kernelllm_judge.core.records import Environment
from kernelllm_judge.environment import find_environment
from pytest_kernelllm.beside.cluster.connection import connected, reason
from pytest_kernelllm.beside.cluster.nodes import Nodes, RaySlot
from pytest_kernelllm.beside.cluster.slot import START_SECONDS, ActorSlot, Cluster
from pytest_kernelllm.beside.cluster.versions import NodeChecks
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.words import say
from pytest_kernelllm.pool.jobs import Engine, PoolFailed
from pytest_kernelllm.pool.messages import Handshake

LOOK_SECONDS = 2.0
"""How often nodes are looked for that joined."""


class RayEngine(Engine):
    """One judging actor in each slot of a cluster, also of nodes that join. Close it with ``with``; that ends them all."""

    def __init__(
        self, settings: Settings, module: str, handshake: Handshake, per_gpu: int, worker: int, workers: int
    ) -> None:
        """Prepares; entering the engine connects it.

        Args:
            settings: the cluster's address, the slots that all pytest-xdist workers together use at most (0: all of them), and
                how long a process may stay in a stage that it reports.
            per_gpu: slots of a GPU at most, or of a node without one.
        """
        limit = settings.workers
        own = max(1, (worker + 1) * limit // workers - worker * limit // workers) if limit else sys.maxsize
        super().__init__(limit=own)
        self._settings = settings
        self._module = module
        self._handshake = handshake
        self._per_gpu = per_gpu
        self._xdist = worker, workers
        self._opened = contextlib.ExitStack()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        """Connects to the cluster.

        Raises:
            PoolFailed: Ray is not installed, there is no cluster, or it has no CPU or GPU to judge on.
        """
        settings, environment = self._settings, self._handshake.environment
        with contextlib.ExitStack() as opening:
            ray = opening.enter_context(connected(settings.cluster))
            nodes = Nodes(
                ray, environment.on_gpu, self._per_gpu, settings.workers or sys.maxsize, *self._xdist
            )
            nodes.check()
            checks = NodeChecks(environment, say)
            seconds = settings.reference_deadline
            cluster = Cluster(ray, self._module, self._handshake, seconds, nodes.threads(), checks, say)
            known: set[RaySlot] = set()
            self._use_new(nodes, cluster, known)
            looking = threading.Thread(target=self._look, args=(nodes, cluster, known), daemon=True)
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
                self._use_new(nodes, cluster, known)
            except Exception:  # the cluster is gone, which those who wait for their actors report
                return

    def _use_new(self, nodes: Nodes, cluster: Cluster, known: set[RaySlot]) -> None:
        for slot in nodes.slots():
            if slot not in known:
                known.add(slot)
                self._add(ActorSlot(cluster, slot))


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

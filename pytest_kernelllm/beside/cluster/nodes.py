"""Finds places for judging actors on the nodes of a Ray cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from pytest_kernelllm.pool.jobs import PoolFailed


@dataclass(frozen=True)
class RaySlot:
    """A place for one actor on a node."""

    node: str
    """Ray's id of the node."""
    name: str
    """The node's name and address, for people."""
    number: int
    """Counts the slots of the node."""
    cpus: float
    gpus: float
    """Share of a GPU; 0 without."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of a cluster, as they are whenever they are asked for."""

    ray: Any
    """The module, connected."""
    cuda: bool
    """Whether candidates run on GPUs."""
    per_gpu: int
    """Slots of a GPU at most, or of a node without one."""
    limit: int
    """Slots that are used at once by all pytest-xdist workers together, at most."""
    worker: int = 0
    """Which of pytest-xdist's workers this is."""
    workers: int = 1
    """How many there are."""

    def check(self) -> None:
        """Checks that there is a slot.

        Raises:
            PoolFailed: there is none; one sentence says what is missing.
        """
        if self.slots():
            return
        if self.cuda and not any(node["Resources"].get("GPU") for node in self._alive()):
            raise PoolFailed(
                "The Ray cluster has no GPUs, but candidates are to run on one; add nodes with GPUs, or use --device cpu."
            )
        raise PoolFailed(
            "The Ray cluster has no CPU for judging; start its nodes with --num-cpus of at least 1."
        )

    def threads(self) -> int:
        """Returns how many threads each slot may use, so that all together use each CPU once."""
        cpus = sum(int(node["Resources"].get("CPU", 0)) for node in self._alive())
        return max(1, cpus // max(1, min(len(self._all()), self.limit), self.workers))

    def slots(self) -> list[RaySlot]:
        """Returns this pytest-xdist worker's slots on all nodes, taken or not.

        First one of each node, then the second of each. Where there are more workers than slots, some share one. There may be more
        than the limit, because some may turn out to be of no use.
        """
        found = self._all()
        if not found or self.worker < len(found):
            return found[self.worker :: self.workers]
        return [found[self.worker % len(found)]]

    def _all(self) -> list[RaySlot]:
        nodes = self._alive()
        total = sum(int(node["Resources"].get("GPU", 0)) for node in nodes)
        # Ray fills one GPU before it takes the next, so slots that are few get large shares.
        needed = -(-self.limit // max(1, total))
        found = []
        for node in nodes:
            cpus, gpus = (int(node["Resources"].get(name, 0)) for name in ("CPU", "GPU"))
            count, share = min(self.per_gpu, cpus), 0.0
            if self.cuda:
                each = max(1, min(self.per_gpu, needed, cpus // max(1, gpus)))
                count, share = min(cpus, gpus * each), 1 / each
            name = " ".join(dict.fromkeys((node["NodeName"], node["NodeManagerAddress"])))
            found += [RaySlot(node["NodeID"], name, number, 1.0, share) for number in range(count)]
        # Workers that share a slot share what it has.
        sharing = max(1, math.ceil(self.workers / max(1, len(found))))
        shared = [
            replace(slot, cpus=_part(slot.cpus, sharing), gpus=_part(slot.gpus, sharing)) for slot in found
        ]
        return sorted(shared, key=lambda slot: slot.number)

    def _alive(self) -> list[dict[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]


def _part(amount: float, parts: int) -> float:
    """An equal part of a resource; Ray counts in units of 1/10000, and must not round up."""
    return math.floor(10000 * amount / parts) / 10000

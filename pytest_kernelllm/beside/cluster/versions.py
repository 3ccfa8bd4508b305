"""Decides which nodes of a Ray cluster may judge: those on which the same is installed as on this machine."""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Callable, Mapping

from kernelllm_judge.core.records import Environment
from pytest_kernelllm.beside.cluster.nodes import RaySlot
from pytest_kernelllm.pool.jobs import CannotStart

_NAMES = {
    "gpu": "the GPU",
    "driver": "the GPU's driver",
    "arch": "the GPU architecture",
    "python": "Python",
    "policy": "the judge's policy",
}
"""How messages name the keys of ``versions``, where they differ from them."""


def versions(environment: Environment) -> dict[str, str]:
    """Returns all that verdicts depend on of what is installed on a machine, by name."""
    return {**environment.to_json(), "pytest-kernelllm": importlib.metadata.version("pytest-kernelllm")}


class NodeChecks:
    """Remembers which nodes are refused, and reports each once, as soon as another one is used. Thread-safe."""

    def __init__(self, environment: Environment, say: Callable[[str], None]) -> None:
        """Starts with every node allowed.

        Args:
            environment: where verdicts hold.
            say: takes a sentence about a node that is refused. Where all are, the run's own error says why.
        """
        self._expected = versions(environment)
        self._say = say
        self._lock = threading.Lock()
        self._refused: dict[str, str] = {}
        """By the node's id, why it is not used."""
        self._unsaid: list[str] = []
        """Sentences that wait until a node is used."""
        self._used = False

    def raise_if_refused(self, slot: RaySlot) -> None:
        """Raises ``CannotStart`` if the slot's node was refused before."""
        if why := self._refused.get(slot.node):
            raise CannotStart(why)

    def check(self, slot: RaySlot, found: Mapping[str, str]) -> None:
        """Compares a node's ``versions`` with this machine's.

        Raises:
            CannotStart: they differ.
        """
        different = [
            f"{_NAMES.get(name, name)} is {found.get(name) or 'missing'} there and {here or 'missing'} here"
            for name, here in self._expected.items()
            if found.get(name) != here
        ]
        if different:
            raise self.refused(slot, ", ".join(different))
        with self._lock:
            self._used = True
            self._report()

    def refused(self, slot: RaySlot, why: str) -> CannotStart:
        """Stops using the slot's node, and returns the error that says so."""
        sentence = f"node {slot.name} is not used because {why}"
        with self._lock:
            if slot.node not in self._refused:
                self._refused[slot.node] = sentence
                self._unsaid.append(f"{sentence[0].upper()}{sentence[1:]}.")
            self._report()
        return CannotStart(sentence)

    def _report(self) -> None:
        while self._used and self._unsaid:
            self._say(self._unsaid.pop(0))

"""The rule ``attributes``: a kernel that claims to read an attribute reads it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_kernelllm.judge.reference.probes import Probe
from pytest_kernelllm.judge.rules.rule import Ask
from pytest_kernelllm.judge.rules.values import OutputRule

SEED = 20
"""Added to the first seed, to draw other inputs than the other rules do."""


@dataclass(frozen=True)
class Attributes(OutputRule):
    """Outputs are right when the float attributes that ``SUPPORTS`` leaves open have other values."""

    name = "attributes"
    says = "outputs are right with other values of the attributes that SUPPORTS leaves open"

    def probes(self, ask: Ask) -> Iterable[Probe]:
        """One probe with all open attributes perturbed."""
        if ask.open_attributes:
            yield ask.probe(self.name, ask.main, SEED, perturbed=ask.open_attributes)

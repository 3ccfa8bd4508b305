"""The rule ``attributes``: a kernel reads the attributes that it claims to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_kernelllm.judge.reference.probes import Probe
from pytest_kernelllm.judge.rules.rule import SupportedCase
from pytest_kernelllm.judge.rules.values import OutputRule

SEED = 20
"""Added to the first seed, so that inputs differ from those of other rules."""


@dataclass(frozen=True)
class Attributes(OutputRule):
    """Outputs are right when the float attributes that ``SUPPORTS`` leaves open have other values."""

    name = "attributes"
    says = "outputs are right with other values of the attributes that SUPPORTS leaves open"

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe with all open attributes perturbed."""
        if supported.open_attributes:
            yield supported.probe(self.name, supported.main, SEED, perturbed=supported.open_attributes)

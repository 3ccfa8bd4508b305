"""The rule ``attributes``: a kernel reads the attributes that it claims to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_kernelllm.judge.reference.probes import Probe
from pytest_kernelllm.judge.reference.weights import ACROSS_ONE, NEGATIVE, OTHER
from pytest_kernelllm.judge.rules.rule import SupportedCase
from pytest_kernelllm.judge.rules.values import OutputRule

SEED = 20
"""Added to the first seed, so that inputs differ from those of other rules."""


@dataclass(frozen=True)
class Attributes(OutputRule):
    """Outputs are right when the float attributes that ``SUPPORTS`` leaves open have other values."""

    name = "attributes"
    says = "outputs are right with other values of the attributes that SUPPORTS leaves open"

    kinds: tuple[str, ...] = (OTHER, ACROSS_ONE, NEGATIVE)
    """Kinds of values, see ``reference.weights``."""

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe for each kind of values, with all open attributes set to such ones."""
        names = supported.open_attributes
        for number, kind in enumerate(self.kinds if names else ()):
            yield supported.probe(self.name, supported.main, SEED + number, perturbed=names, values=kind)

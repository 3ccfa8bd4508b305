"""The rule ``attributes``: a kernel reads the attributes that it claims to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelllm_judge.rules.rule import SupportedCase
from kernelllm_judge.rules.stress import stress_sizes
from kernelllm_judge.rules.values import OutputRule
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.weights import ACROSS_ONE, NEGATIVE, OTHER


@dataclass(frozen=True)
class Attributes(OutputRule):
    """Outputs are right when the float attributes that ``SUPPORTS`` leaves open have other values."""

    name = "attributes"
    says = "outputs are right with other values of the attributes that SUPPORTS leaves open"

    all_kinds: tuple[str, ...] = (OTHER, ACROSS_ONE, NEGATIVE)
    """Kinds of values (``reference.weights``) where probes are cheap…"""
    few_kinds: tuple[str, ...] = (ACROSS_ONE, NEGATIVE)
    """…and in Triton's interpreter, or where inputs cannot be made small."""

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe for each kind of values, with all open attributes set to such ones."""
        names = supported.open_attributes
        sizes, cheap = stress_sizes(supported)
        kinds = self.all_kinds if cheap else self.few_kinds
        for number, kind in enumerate(kinds if names else ()):
            yield supported.probe(self.name, sizes, self.seed + number, perturbed=names, values=kind)

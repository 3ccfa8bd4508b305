"""The rule ``fixed inputs``: outputs are right where inputs that are the same at every seed have other values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelllm_judge.rules.rule import SupportedCase
from kernelllm_judge.rules.stress import stress_sizes
from kernelllm_judge.rules.values import OutputRule
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.variations import OTHERS_FOR_FIXED


@dataclass(frozen=True)
class FixedInputs(OutputRule):
    """A kernel reads inputs such as ``torch.ones`` and ``torch.arange``, which come with other values in use."""

    name = "fixed inputs"
    says = "outputs are right when inputs that are the same at every seed have other values"

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe with other values for all such inputs."""
        yield supported.probe(self.name, stress_sizes(supported)[0], self.seed, stress=OTHERS_FOR_FIXED)

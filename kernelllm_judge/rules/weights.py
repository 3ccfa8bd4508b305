"""The rule ``weights``: outputs are right for negative and zero weights, and NaN in a weight shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelllm_judge.rules.rule import SupportedCase
from kernelllm_judge.rules.stress import stress_sizes
from kernelllm_judge.rules.values import OutputRule
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.weights import SIGNED, WITH_NAN


@dataclass(frozen=True)
class Weights(OutputRule):
    """Outputs are right for weights that training may reach, however the module initialises them."""

    name = "weights"
    says = "outputs are right for negative and zero weights, and NaN in a weight shows where it does in the original"

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe for each kind of weights."""
        sizes, _ = stress_sizes(supported)
        for number, kind in enumerate((SIGNED, WITH_NAN) if supported.nonfinite else (SIGNED,)):
            yield supported.probe(self.name, sizes, self.seed + number, state=kind)

"""The rule ``near-duplicate``: outputs are right for inputs that differ in a few values from earlier ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelllm_judge.rules.rule import SupportedCase
from kernelllm_judge.rules.values import OutputRule
from kernelllm_judge.truth.probes import Probe
from kernelllm_judge.truth.stress import NEAR_DUPLICATES


@dataclass(frozen=True)
class NearDuplicate(OutputRule):
    """Outputs are right where a kernel that knows inputs by some of their values would be wrong."""

    name = "near-duplicate"
    says = "outputs are right for inputs that differ from earlier ones in a few values only"
    main = True
    context = "after inputs that differ in a few values only, "

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns probes with the last seed's inputs but for a few values, to run right after that one.

        The few values are in other places each time, so at most one probe changes all that a kernel looks at.
        """
        last = supported.policy.seeds - 1
        return [supported.probe(self.name, supported.main, last, stress=kind) for kind in NEAR_DUPLICATES]

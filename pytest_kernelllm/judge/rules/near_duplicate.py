"""The rule ``near-duplicate``: inputs that differ from earlier ones in a few values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_kernelllm.judge.reference.probes import Probe
from pytest_kernelllm.judge.reference.stress import NEAR_DUPLICATE
from pytest_kernelllm.judge.rules.rule import SupportedCase
from pytest_kernelllm.judge.rules.values import OutputRule


@dataclass(frozen=True)
class NearDuplicate(OutputRule):
    """Outputs are right where a kernel that knows earlier inputs by some of their values would copy old ones."""

    name = "near-duplicate"
    statement = "outputs are right for inputs that differ from earlier ones in a few values only"
    main = True
    context = "after inputs that differ in a few values only, "

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """The inputs of the last seed but for a few values, asked right after it."""
        return [supported.probe(self.name, supported.main, supported.policy.seeds - 1, stress=NEAR_DUPLICATE)]

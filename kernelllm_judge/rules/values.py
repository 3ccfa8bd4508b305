"""The rule ``values``: outputs are right for several draws of inputs in the same memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelllm_judge.rules.rule import Rule, SupportedCase
from kernelllm_judge.run.call import ProbeRun
from kernelllm_judge.run.comparison import check_outputs
from kernelllm_judge.truth.probes import Probe


@dataclass(frozen=True)
class OutputRule(Rule):
    """Base class of rules that check the outputs of their own probes."""

    context = ""
    """Beginning of the reason for a rejection, where the probe's description is not enough."""

    def check_run(self, run: ProbeRun) -> None:
        """Compares the outputs if the probe belongs to this rule."""
        if run.prepared.probe.rule == self.name:
            check_outputs(run.judging, run.uploaded, run.prepared, self.name, self.context)


@dataclass(frozen=True)
class Values(OutputRule):
    """Outputs are right for fresh values in the same memory: no result of an earlier call is reused."""

    name = "values"
    says = "outputs are right for fresh values in the same memory, several times over"
    main = True

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """Returns one probe per seed at the main sizes. ``judge.plans`` adds the first seed's itself."""
        return [
            supported.probe(self.name, supported.main, number) for number in range(1, supported.policy.seeds)
        ]

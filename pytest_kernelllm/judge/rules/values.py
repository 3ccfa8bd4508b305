"""The rule ``values``: outputs are right for fresh values in the same memory, several times over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_kernelllm.judge.reference.probes import Probe
from pytest_kernelllm.judge.rules.rule import Rule, SupportedCase
from pytest_kernelllm.judge.run.call import ProbeRun
from pytest_kernelllm.judge.run.comparison import check_outputs


@dataclass(frozen=True)
class OutputRule(Rule):
    """A rule that outputs at its own probes are right."""

    context = ""
    """How a reason begins, where the probe alone does not say what was special."""

    def check_run(self, run: ProbeRun) -> None:
        """Compare the outputs, if the probe is this rule's."""
        if run.prepared.probe.rule == self.name:
            check_outputs(run.judging, run.uploaded, run.prepared, self.name, self.context)


@dataclass(frozen=True)
class Values(OutputRule):
    """Outputs are right for fresh values in the same memory: nothing is kept by address or from an earlier call."""

    name = "values"
    statement = "outputs are right for fresh values in the same memory, several times over"
    main = True

    def probes(self, supported: SupportedCase) -> Iterable[Probe]:
        """One probe a seed at the case's main size. The first is the judge's own, see ``plans``."""
        return [
            supported.probe(self.name, supported.main, number) for number in range(1, supported.policy.seeds)
        ]

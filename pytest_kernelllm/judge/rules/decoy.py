"""The rule ``decoy``: outputs are wrong when kernel launches are skipped."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernelllm.judge.findings import Decision, OutOfMemory
from pytest_kernelllm.judge.rules.rule import CaseRun, Rule
from pytest_kernelllm.judge.run.call import call
from pytest_kernelllm.judge.run.comparison import outputs_pass


@dataclass(frozen=True)
class Decoy(Rule):
    """The kernels that are launched compute the outputs."""

    name = "decoy"
    says = "outputs are wrong when the kernels are left out, at a probe where a wrong output shows"

    def check_case(self, case: CaseRun) -> None:
        """Runs a discriminating probe with kernel launches skipped."""
        if case.first.prepared.trivial is None:
            broken = (
                f"its kernels are decoys: without them the outputs are just as right, at {case.first.where}"
            )
            needed = not self._right_without_kernels(case)
            case.first.judging.findings.require(self.name, "outputs need the kernels", needed, broken)

    def _right_without_kernels(self, case: CaseRun) -> bool:
        judging, prepared, uploaded = case.first.judging, case.first.prepared, case.elsewhere
        try:
            call(judging, uploaded, prepared, "no kernels")
        except OutOfMemory:
            raise
        except Decision:  # a call that fails without its kernels needs them
            return False
        return outputs_pass(judging, uploaded, prepared)

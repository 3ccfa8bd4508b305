"""The rule ``repeat``: outputs stay right when programs run in another order, or beside other work."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.rules.launches import check_launches
from kernelllm_judge.rules.rule import CaseRun, Rule
from kernelllm_judge.run.call import call
from kernelllm_judge.run.comparison import check_outputs


@dataclass(frozen=True)
class Repeat(Rule):
    """No program of a grid depends on whether another one has already run."""

    name = "repeat"
    says = "outputs stay right when programs run in another order, or beside other work"

    in_interpreter: int = 1
    """Further runs in Triton's interpreter, where programs run in reverse order: it is deterministic."""
    on_gpu: int = 10
    """Further runs on a GPU, where the order cannot be chosen and each run costs a millisecond."""

    def check_case(self, case: CaseRun) -> None:
        """Runs the probe again, once or several times."""
        judging, prepared, uploaded = case.first.judging, case.first.prepared, case.elsewhere
        for _ in range(self.on_gpu if judging.on_gpu else self.in_interpreter):
            reply = call(judging, uploaded, prepared, "reversed")
            where = f"when the same probe was run again, at {case.first.where}"
            check_launches(reply, where, judging.findings)
            check_outputs(judging, uploaded, prepared, self.name, "in another run of the same probe, ")

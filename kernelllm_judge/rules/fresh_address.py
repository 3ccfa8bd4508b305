"""The rule ``fresh address``: the same values at other addresses give right outputs."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.rules.launches import check_launches
from kernelllm_judge.rules.rule import CaseRun, Rule
from kernelllm_judge.run.call import call
from kernelllm_judge.run.comparison import check_outputs


@dataclass(frozen=True)
class FreshAddress(Rule):
    """No result is cached by address, and no address is assumed."""

    name = "fresh address"
    says = "the same values at other addresses give right outputs"

    def check_case(self, case: CaseRun) -> None:
        """Runs the probe again with every tensor at another address."""
        judging, prepared, uploaded = case.first.judging, case.first.prepared, case.elsewhere
        reply = call(judging, uploaded, prepared, "watched")
        where = f"with the same values at other addresses, at {case.first.where}"
        check_launches(reply, where, judging.findings)
        context = "with the same values at other addresses, "
        check_outputs(judging, uploaded, prepared, self.name, context)

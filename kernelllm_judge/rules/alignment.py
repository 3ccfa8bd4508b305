"""The rule ``alignment``: outputs are right where tensors start one element after an aligned address."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.rules.rule import CaseRun, Rule
from kernelllm_judge.run.call import call, upload
from kernelllm_judge.run.comparison import check_outputs


@dataclass(frozen=True)
class Alignment(Rule):
    """A slice of another tensor starts anywhere; no kernel takes an address for a multiple of 16 bytes."""

    name = "alignment"
    says = "outputs are right where inputs and parameters start one element after an aligned address"

    def check_case(self, case: CaseRun) -> None:
        """Runs the probe again with every tensor one element further on."""
        judging, prepared = case.first.judging, case.first.prepared
        uploaded = upload(judging, prepared, off=1)
        call(judging, uploaded, prepared, "watched")
        check_outputs(judging, uploaded, prepared, self.name, "with tensors at odd addresses, ")

"""The rule ``decoy``: outputs are wrong when kernel launches are skipped."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelllm_judge.findings import Decision, OutOfMemory
from kernelllm_judge.rules.rule import CaseRun, Rule
from kernelllm_judge.run.call import Judging, Uploaded, call, upload
from kernelllm_judge.run.comparison import outputs_pass
from kernelllm_judge.run.torch_work import torch_work, vendor_kinds
from kernelllm_judge.truth.acceptance import Unasked
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_judge.truth.variations import OTHERS_THAN_GIVEN


@dataclass(frozen=True)
class Decoy(Rule):
    """The kernels that are launched compute the outputs."""

    name = "decoy"
    says = "outputs are wrong when the kernels are left out, at a probe where a wrong output shows"

    def check_case(self, case: CaseRun) -> None:
        """Runs a discriminating probe with kernel launches skipped."""
        judging, prepared = case.first.judging, case.first.prepared
        if prepared.trivial is None:
            right = _right_without_kernels(judging, prepared, case.elsewhere)
            needed = not right or (_computes(case) and _needed_for_others(judging, prepared))
            broken = (
                f"its kernels are decoys: without them the outputs are just as right, at {case.first.where}"
            )
            judging.findings.require(self.name, "outputs need the kernels", needed, broken)


def _computes(case: CaseRun) -> bool:
    """Whether the original does anything that must not be left to torch, so that a kernel has work at all."""
    operations = case.original.operations
    return bool(torch_work(operations, vendor_kinds(operations)))


def _needed_for_others(judging: Judging, given: PreparedProbe) -> bool:
    """Whether other inputs need the kernels: a kernel that clears half of a matrix does nothing to a triangular one.

    Whatever memory keeps from the last call with kernels is of the others when the given inputs are tried again, so
    that no kept result passes for torch's work.
    """
    try:
        others = judging.references.prepare(replace(given.probe, stress=OTHERS_THAN_GIVEN))
    except Unasked:
        return False
    if others.trivial is not None:
        return False
    call(judging, upload(judging, others), others, "watched")
    return _right_without_kernels(judging, given, upload(judging, given)) and not _right_without_kernels(
        judging, others, upload(judging, others)
    )


def _right_without_kernels(judging: Judging, prepared: PreparedProbe, uploaded: Uploaded) -> bool:
    try:
        call(judging, uploaded, prepared, "no kernels")
    except OutOfMemory:
        raise
    except Decision:  # a call that fails without its kernels needs them
        return False
    return outputs_pass(judging, uploaded, prepared)

"""The rules by which a probe is run again, in ways that make no difference to an honest kernel."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.records import Check
from kernelllm_judge.findings import Decision, OutOfMemory
from kernelllm_judge.rules.rule import CaseRun, Rule
from kernelllm_judge.rules.work import check_launches
from kernelllm_judge.run.call import call, upload
from kernelllm_judge.run.comparison import check_outputs

MOVED = "where the judge moves every tensor to one element behind an aligned address"


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


@dataclass(frozen=True)
class Alignment(Rule):
    """A slice of another tensor starts anywhere; no kernel takes an address for a multiple of 16 bytes."""

    name = "alignment"
    says = (
        "outputs are right where inputs and parameters start one element after an aligned address, or SUPPORTS leaves such calls "
        "to the original"
    )

    def check_case(self, case: CaseRun) -> None:
        """Runs the probe again with every tensor one element further on."""
        if case.aligned:
            detail = "tensors that start at no multiple of 16 bytes are left to the original"
            case.first.judging.findings.record(self.name, Check("aligned tensors", True, None, None, detail))
            return
        judging, prepared = case.first.judging, case.first.prepared
        uploaded = upload(judging, prepared, off=1)
        try:
            call(judging, uploaded, prepared, "watched")
        except OutOfMemory:
            raise
        except Decision as decision:
            reason = f"{MOVED}, {decision.reason}"
            raise Decision("rejected", "correctness", reason, self.name) from None
        check_outputs(judging, uploaded, prepared, self.name, f"{MOVED}, ")

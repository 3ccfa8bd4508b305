"""The rule ``surroundings``: a kernel computes the same wherever it is called, and leaves PyTorch's modes as they were."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.findings import Findings
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.rules.rule import CaseRun, Rule
from kernelllm_judge.run.call import ProbeRun, Reply, call
from kernelllm_judge.run.comparison import check_outputs

NAME = "surroundings"


@dataclass(frozen=True)
class Surroundings(Rule):
    """No call depends on what differs between a judge's process and a user's, nor changes it."""

    name = NAME
    says = (
        "outputs are the same in inference mode and for inputs that require gradients; a call asks for nothing of the target "
        "but the values that the original reads, draws no random numbers, and leaves PyTorch's modes as they were"
    )

    def check_run(self, run: ProbeRun) -> None:
        """Reads what the worker reports."""
        check_surroundings(run.reply, f"at {run.where}", run.judging.findings)

    def check_case(self, case: CaseRun) -> None:
        """Runs the probe again in other surroundings."""
        judging, prepared, uploaded = case.first.judging, case.first.prepared, case.elsewhere
        reply = call(judging, uploaded, prepared, "elsewhere")
        check_surroundings(reply, f"in inference mode, at {case.first.where}", judging.findings)
        context = "in inference mode, for inputs that require gradients, "
        check_outputs(judging, uploaded, prepared, self.name, context)


def check_surroundings(reply: Reply, where: str, findings: Findings) -> None:
    """Records whether a call asked for no more than it is given, and left everything around it as it was.

    Raises:
        Decision: it did not.
        WorkerDied: the reply is not valid.
    """
    asked, left = reply.get("asked"), reply.get("left")
    if not (isinstance(asked, list) and isinstance(left, list)):
        raise WorkerDied("its reply to `run` is not a valid report")
    what = ", ".join(f"{each!s:.80}" for each in asked[:2])
    findings.require(NAME, "asks for values only", not asked, f"it asks for {what}, {where}")
    named = ", ".join(f"{each!s:.80}" for each in left[:4])
    findings.require(NAME, "leaves PyTorch's modes", not left, f"it leaves {named} changed, {where}")

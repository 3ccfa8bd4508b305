"""The rule ``launches``: every call launches Triton kernels of the candidate.

It applies to every call that is watched or timed singly, because a candidate may cache results and launch
nothing in later calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.findings import Findings
from kernelllm_judge.rules.rule import Rule, TimedCall
from kernelllm_judge.run.call import ProbeRun, Reply

NAME = "launches"


@dataclass(frozen=True)
class Launches(Rule):
    """Every call launches a kernel of the candidate."""

    name = NAME
    says = (
        "every call that is watched or timed by itself, repeated ones too, launches Triton kernels of the "
        "candidate's own"
    )

    def check_run(self, run: ProbeRun) -> None:
        """Checks the number of launches that the worker reports."""
        check_launches(run.reply, f"at {run.where}", run.judging.findings)

    def check_timed_call(self, call: TimedCall) -> None:
        """Checks calls that are timed singly; a loop reports no number of launches."""
        if not call.looped:
            where = f"in the timed loop at {call.run.where}"
            check_launches(call.run.reply, where, call.run.judging.findings)


def check_launches(reply: Reply, where: str, findings: Findings) -> None:
    """Records whether the call that a reply describes launched any kernel.

    Raises:
        Decision: it launched none.
    """
    launched = reply.get("launches")
    busy = isinstance(launched, int) and launched > 0
    findings.require(NAME, "launches its kernels", busy, f"it launched no Triton kernel {where}")

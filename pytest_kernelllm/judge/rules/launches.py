"""The rule ``launches``: a call launches Triton kernels of the candidate's own.

It is asked of every call that is watched or timed by itself, because a candidate may keep results and launch nothing
in later calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernelllm.judge.findings import Findings
from pytest_kernelllm.judge.rules.rule import Rule, TimedCall
from pytest_kernelllm.judge.run.call import ProbeRun, Reply

NAME = "launches"


@dataclass(frozen=True)
class Launches(Rule):
    """Every call launches a kernel of the candidate's own."""

    name = NAME
    statement = (
        "every call that is watched or timed by itself, repeated ones too, launches Triton kernels of the "
        "candidate's own"
    )

    def check_run(self, run: ProbeRun) -> None:
        """Look at the worker's count of launches."""
        check_launches(run.reply, f"at {run.where}", run.judging.findings)

    def check_timed_call(self, call: TimedCall) -> None:
        """Look at single calls; of calls in a row only the last is described."""
        if not call.looped:
            where = f"in the timed loop at {call.run.where}"
            check_launches(call.run.reply, where, call.run.judging.findings)


def check_launches(reply: Reply, where: str, findings: Findings) -> None:
    """Record whether the call behind a reply launched any kernel.

    Raises:
        Decision: it launched none.
    """
    launched = reply.get("launches")
    busy = isinstance(launched, int) and launched > 0
    findings.require(NAME, "launches its kernels", busy, f"it launched no Triton kernel {where}")

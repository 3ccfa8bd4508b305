"""The rule ``speed``: the kernel is faster than the baseline by the user's threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_kernelllm.core.records import Check, Timing
from pytest_kernelllm.judge.findings import Decision, Findings
from pytest_kernelllm.judge.rules.rule import Rule


@dataclass(frozen=True)
class Speed(Rule):
    """At least one case reaches the user's ``min_speedup``, and no case gets slower."""

    name = "speed"
    says = "the lower end of the speedup's interval clears the threshold"
    stage = "timing"
    switchable = False
    device = "cuda"

    def check_speedups(
        self,
        timings: Sequence[Timing],
        least: float,
        baseline: Literal["eager", "compile"],
        findings: Findings,
    ) -> None:
        """Rejects a kernel that is slower on some case, or reaches the threshold on none.

        Args:
            timings: one for each case.
            least: speedup that the lower end of the interval must reach.
            baseline: what the speedup is measured against; eager where the module cannot be compiled.
            findings: receives one check per case.
        """
        slow = []
        for timing in timings:
            against_compiled = baseline == "compile" and timing.speedup_compiled is not None
            s = timing.speedup_compiled if against_compiled and timing.speedup_compiled else timing.speedup
            name = "torch.compile" if against_compiled else "eager"
            enough = s.low >= least
            interval = f"[{s.low:.2f}, {s.high:.2f}]"
            detail = f"{s.value:.2f}x {name} {interval} on {timing.case}, required at least {least:.2f}x"
            check = Check(f"speedup on {timing.case}", enough, s.low, least, detail)
            findings.checks.append(check)
            if not enough:
                slow.append((check, s.high))
        loses = any(high < 1.0 for _, high in slow)
        if slow and (loses or len(slow) == len(timings)):
            raise Decision("rejected", "timing", f"not fast enough: {slow[0][0].detail}", self.name)

"""The rule ``speed``: the kernel is faster than the baseline by the user's threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelllm_judge.core.records import BaselineChoice, Check, Ratio, Timing
from kernelllm_judge.findings import Decision, Findings
from kernelllm_judge.rules.rule import Rule


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
        baseline: BaselineChoice,
        findings: Findings,
    ) -> None:
        """Rejects a kernel that is slower on some case, or reaches the threshold on none.

        Args:
            timings: one for each case.
            least: speedup that the lower end of the interval must reach.
            baseline: what the speedup is measured against: eager where the module cannot be compiled.
            findings: receives one check per case.
        """
        slow = []
        for timing in timings:
            name, s = against(timing, baseline)
            enough = s.low >= least
            interval = f"[{s.low:.2f}, {s.high:.2f}]"
            detail = f"{s.value:.2f}x {name} {interval} on {timing.name}, required at least {least:.2f}x"
            check = Check(f"speedup on {timing.name}", enough, s.low, least, detail)
            findings.checks.append(check)
            if not enough:
                slow.append((check, s.high))
        loses = any(high < 1.0 for _, high in slow)
        if slow and (loses or len(slow) == len(timings)):
            raise Decision("rejected", "timing", f"not fast enough: {slow[0][0].detail}", self.name)


def against(timing: Timing, baseline: BaselineChoice) -> tuple[str, Ratio]:
    """Returns what a case's speedup is measured against, in words, and the speedup."""
    eager, compiled = timing.speedup, timing.speedup_compiled
    if compiled is None or baseline == "eager" or (baseline == "best" and eager.value < compiled.value):
        return "eager", eager
    return "torch.compile", compiled

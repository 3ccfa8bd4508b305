"""The threshold: is a kernel fast enough to be worth having."""

from __future__ import annotations

from typing import Literal

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.run.run import Decided, Proceedings


def check_speed(found: Proceedings, least: float, baseline: Literal["eager", "compile"]) -> None:
    """Whether the kernel is worth having: some case gains and none loses.

    Args:
        found: all timings; receives the checks.
        least: speedup that the interval's lower end must reach.
        baseline: against what; eager where the module cannot be compiled.

    Raises:
        Decided: it is not.
    """
    slow = []
    for timing in found.timing:
        against_compiled = baseline == "compile" and timing.speedup_compiled is not None
        s = timing.speedup_compiled if against_compiled and timing.speedup_compiled else timing.speedup
        name = "torch.compile" if against_compiled else "eager"
        enough = s.low >= least
        detail = f"{s.value:.2f}x {name} [{s.low:.2f}, {s.high:.2f}] on {timing.case}, wanted at least {least:.2f}x"
        check = Check(f"speedup on {timing.case}", enough, s.low, least, detail)
        found.checks.append(check)
        if not enough:
            slow.append((check, s.high))
    loses = any(high < 1.0 for _, high in slow)
    if slow and (loses or len(slow) == len(found.timing)):
        raise Decided("rejected", "timing", f"not fast enough: {slow[0][0].detail}", "speed")

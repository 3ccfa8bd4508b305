"""The rule ``clocks``: the worker's clock and the judge's own agree."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.records import Check
from kernelllm_judge.findings import Decision
from kernelllm_judge.rules.rule import Rule
from kernelllm_judge.run.call import ProbeRun
from kernelllm_judge.timing.measure import Measurement, allowed_difference


@dataclass(frozen=True)
class Clocks(Rule):
    """The worker's CUDA events report no less time than the judge's clock, for single calls and for loops."""

    name = "clocks"
    says = "the worker's clock and the judge's own agree"
    stage = "timing"
    device = "cuda"

    def check_measurement(self, run: ProbeRun, measured: Measurement) -> None:
        """Compares the two clocks."""
        reported = min(measured.events_us, measured.single_us)
        difference = measured.judge_us - reported
        allowed = allowed_difference(run.judging.policy, measured.judge_us)
        agree = difference <= allowed
        broken = (
            f"the worker's clock reports {reported:.1f} µs a call, the judge's {measured.judge_us:.1f} µs, "
            f"at {run.where}"
        )
        if not agree and measured.disturbed:
            raise Decision(
                "inconclusive",
                self.stage,
                f"{broken}; nor do they agree about the original: something else uses the GPU",
            )
        check = Check("clocks agree", agree, round(difference, 3), round(allowed, 3), "" if agree else broken)
        run.judging.findings.record(self.name, check)

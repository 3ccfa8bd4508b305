"""The rule ``roofline``: no call is faster than this GPU can move the bytes it must."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.records import Check
from kernelllm_judge.rules.rule import Rule
from kernelllm_judge.run.call import ProbeRun
from kernelllm_judge.timing.measure import Measurement


@dataclass(frozen=True)
class RooflineRule(Rule):
    """No call is faster than the GPU can move the bytes that the call must read and write."""

    name = "roofline"
    says = "no call is faster than this GPU can move the bytes it must"
    stage = "timing"
    device = "cuda"

    slack: float = 0.8
    """Least share of the roofline's time that a call may take. Below 1, because the measured ceilings may
    be a little too low."""

    def check_measurement(self, run: ProbeRun, measured: Measurement) -> None:
        """Compares the reported time with the least possible time."""
        reported = min(measured.events_us, measured.single_us)
        least = measured.needed_us * self.slack
        possible = reported >= least
        broken = (
            f"a call reports {reported:.1f} µs, but this GPU needs {measured.needed_us:.1f} µs to move the bytes "
            "that the call must read and write"
        )
        check = Check(
            "slower than the roofline",
            possible,
            round(reported, 3),
            round(least, 3),
            "" if possible else broken,
        )
        run.judging.findings.record(self.name, check)

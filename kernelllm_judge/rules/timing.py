"""The rules about timed calls and their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelllm_judge.core.records import BaselineChoice, Check, Ratio, Timing
from kernelllm_judge.findings import Decision, Findings
from kernelllm_judge.rules.outputs import Types
from kernelllm_judge.rules.rule import Rule, TimedCall
from kernelllm_judge.run.backward import check_gradients, check_incoming
from kernelllm_judge.run.call import ProbeRun
from kernelllm_judge.run.comparison import check_outputs
from kernelllm_judge.timing.measure import Measurement, allowed_difference


@dataclass(frozen=True)
class Recheck(Rule):
    """Timed calls compute the right outputs, too: what is timed is what was judged."""

    name = "recheck"
    says = "outputs and gradients of calls in the timed loop, chosen in secret, are right"
    stage = "timing"
    device = "cuda"

    share: float = 0.3
    """Share of singly timed calls whose outputs are checked. Loops always are, but for modules that update their buffers."""

    def check_timed_call(self, call: TimedCall) -> None:
        """Compares what randomly chosen calls gave, large outputs in random places; a candidate cannot know which.

        What is equal, bit by bit, to what was right before is right.
        """
        judging = call.run.judging
        if call.looped and call.run.prepared.updates.names:
            return  # each call but the first finds what the one before has left in its buffers
        if not call.looped:
            if judging.rng.random() >= self.share:
                return
            Types().check_run(call.run)
        run, context = call.run, "in the timed loop, "
        given = [buffer for buffer, _ in run.uploaded.outputs]
        if call.backward is not None:
            check_incoming(judging, run.prepared, call.backward, self.name)
            given += call.backward.written
        if call.right.holds(run.prepared.probe, given):
            return
        copies = call.right.copies(given)
        check_outputs(judging, run.uploaded, run.prepared, self.name, context, sampled=True)
        if call.backward is not None:
            check_gradients(judging, run.prepared, call.backward, self.name, context)
        call.right.keep(run.prepared.probe, given, copies)


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


@dataclass(frozen=True)
class Speed(Rule):
    """At least one case reaches the user's ``min_speedup``, and no case gets slower."""

    name = "speed"
    says = "the lower end of the speedup's interval clears the threshold"
    stage = "timing"
    switchable = False
    device = "cuda"

    def check_speedups(
        self, timings: Sequence[Timing], least: float, baseline: BaselineChoice, findings: Findings
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

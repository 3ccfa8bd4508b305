"""Times one case on the GPU: the candidate in its worker against eager and ``torch.compile`` in the judge.

For every timed call or loop the judge writes fresh values to the same addresses and poisons the outputs.
Afterwards it checks the outputs of some calls, and no call can know whether it is one of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelllm_judge.core.accelerator import PeakMemory
from kernelllm_judge.core.measured import CaseTime
from kernelllm_judge.core.records import Timing
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.policy import Policy
from kernelllm_judge.run.backward import Backward
from kernelllm_judge.run.call import (
    Judging,
    ProbeRun,
    Reply,
    Uploaded,
    call,
    hand_over,
    poison,
    refill,
    refuse_failure,
)
from kernelllm_judge.shared.clock import GpuClock
from kernelllm_judge.timing import timing
from kernelllm_judge.timing.baselines import Baseline, OriginalCalls
from kernelllm_judge.timing.roofline import Flops, Roofline, count_flops, needed_bytes
from kernelllm_judge.truth.prepared import PreparedProbe

FIRST_CALLS = 5
"""Calls that tell how long one takes, about."""

LOOP_US = 24_000
"""About how many µs a loop takes with which a search times a program, overwrites of L2 included."""


@dataclass(frozen=True)
class Measurement:
    """The times of one case, with the figures that rules check."""

    timing: Timing
    judge_us: float
    """µs of one cold call by the judge's clock."""
    events_us: float
    """µs of the same calls by the worker's CUDA events."""
    single_us: float
    """Median µs of singly timed calls by the worker's CUDA events."""
    needed_us: float
    """µs that the GPU needs at least for such a call, see ``Roofline.least``."""
    disturbed: bool = False
    """Whether the two clocks do not agree about the original either, which hides nothing: something else uses the GPU."""


@dataclass
class CandidateRunner:
    """The candidate as an ``Implementation``: each call is a request to its worker."""

    judging: Judging
    uploaded: Uploaded
    prepared: Sequence[PreparedProbe]
    """Probes of equal sizes; the first is uploaded."""
    check: Callable[[ProbeRun, bool, Backward | None], None]
    """Called after every timed call (False) and loop (True), with its backward pass, if it has one."""
    flush_us: float
    """µs that an overwrite of L2 takes."""
    backwards: Sequence[Backward] = ()
    """For each probe its backward pass, where calls have one. All use the same buffers."""
    name: str = "kernel"
    peak: int = 0
    """Most bytes allocated during a call, outputs included."""
    written: PreparedProbe = field(init=False)
    """The probe whose values are in the shared buffers."""
    backward: Backward | None = field(init=False)
    """The probe's backward pass, where calls have one."""

    def __post_init__(self) -> None:
        """Notes that the first probe is uploaded."""
        self._note(0)

    def cold(self, flushes: int) -> float:
        """Times one call behind ``flushes`` overwrites of L2, in µs by the worker's CUDA events."""
        self._write()
        asked = self._asked()
        reply = call(self.judging, self.uploaded, self.written, "timed", flushes=flushes, **asked)
        took, peak = reply.get("microseconds"), reply.get("peak")
        if not (isinstance(took, float) and 0 < took < 1e9 and isinstance(peak, int)):
            raise WorkerDied("its reply has no valid times")
        self.peak = max(self.peak, peak)
        self.check(self._run(reply), False, self.backward)
        return took

    def renew(self) -> None:
        """Writes fresh values for the next loop."""
        self._write()
        for buffer, _ in self.uploaded.outputs:
            poison(buffer)
        hand_over(self.judging)

    def loop(self, count: int, flushes: int = 0) -> list[float]:
        """Times ``count`` calls in a row, in µs, see ``GpuClock.many``; checks the last one's outputs."""
        outputs = [description for _, description in self.uploaded.outputs]
        reply = self.judging.worker.request(
            "loop",
            inputs=[self.uploaded.arguments],
            outputs=outputs,
            count=count,
            flushes=flushes,
            **self._asked(),
        )
        run = self._run(reply)
        refuse_failure(self.judging, reply, self.written, f"in the timed loop at {run.where}")
        events = reply.get("events")
        if not (
            isinstance(events, list) and events and all(isinstance(e, float) and 0 < e < 1e9 for e in events)
        ):
            raise WorkerDied("its reply has no valid times")
        self.check(run, True, self.backward)
        return events

    def _run(self, reply: Reply) -> ProbeRun:
        return ProbeRun(self.judging, self.written, self.uploaded, reply)

    def _asked(self) -> dict[str, Any]:
        return {} if self.backward is None else {"grad": self.backward.request}

    def _note(self, number: int) -> None:
        self.written = self.prepared[number]
        self.backward = self.backwards[number] if self.backwards else None

    def _write(self) -> None:
        self._note(self.judging.rng.randrange(len(self.prepared)))
        refill(self.uploaded, self.written)
        if self.backward is not None:
            self.backward.renew()


def measure(
    runner: CandidateRunner, roofline: Roofline, clock: GpuClock, original: OriginalCalls
) -> Measurement:
    """Times one case.

    Args:
        original: the same passes of the original.

    Raises:
        Decision: a check after a timed call failed.
        WorkerDied: the worker process ended.
    """
    prepared, judging = runner.prepared[0], runner.judging
    policy = judging.policy
    flush_us = runner.flush_us
    eager = Baseline("eager", original.eager, clock)
    implementations: list[timing.Implementation] = [runner, eager]
    if original.compiled is not None:
        implementations.append(Baseline("compiled", original.compiled, clock))
    with torch.no_grad():
        flushes = timing.flushes_to_hide(implementations, flush_us)
        series, flushes = timing.interleave_quietly(implementations, flushes, policy, judging.rng)
        single = series["kernel"].median

        judged, events = timing.by_the_judge(
            runner, clock, single, flushes["kernel"], _agreement(policy, single)
        )
        hidden = judged - min(events, single) > allowed_difference(policy, judged)
        disturbed = hidden and _is_disturbed(policy, clock, eager, series["eager"].median, flushes["eager"])
        eager_peak = _peak(eager)
        flops = count_flops(original.eager)
    # Gradients count for nothing: in some better way they may take no memory of their own.
    needed = roofline.least(*needed_bytes(prepared), flops.total)
    least = _roofline_us(original, prepared, flops, roofline)
    spreads = {name: timing.spread(s.calls) for name, s in series.items()}
    warm = {name: timing.spread(s.warm) for name, s in series.items()}
    figures = Timing(
        case=prepared.probe.case,
        kernel=spreads["kernel"],
        eager=spreads["eager"],
        kernel_warm=warm["kernel"],
        eager_warm=warm["eager"],
        speedup=timing.ratio(series["eager"], series["kernel"], policy.between_runs),
        compiled=spreads.get("compiled"),
        compiled_warm=warm.get("compiled"),
        speedup_compiled=timing.ratio(series["compiled"], series["kernel"], policy.between_runs)
        if original.compiled is not None
        else None,
        judge_clock=round(judged, 3),
        event_clock=round(events, 3),
        bytes=original.bytes,
        flops=flops.total,
        roofline=round(least, 3),
        roofline_share=round(min(least / spreads["kernel"].p50, 9.99), 4),
        kernel_peak=runner.peak,
        eager_peak=eager_peak,
        passes=original.passes,
        samples={name: timing.sample(s.calls) for name, s in series.items()},
    )
    return Measurement(figures, judged, events, single, needed, disturbed)


def measure_alone(runner: CandidateRunner, roofline: Roofline, original: OriginalCalls) -> CaseTime:
    """Times one case of a candidate that is not judged, without baselines: the median of cold calls in loops, by CUDA events.

    The judge's clock is not asked: what a search finds is judged. Of two loops the faster counts, the second one behind more
    overwrites of L2, because anything else that the machine does can only add to it.

    Args:
        runner: the candidate; its probe is uploaded.
        original: the same passes of the original, of which only the operations are counted.

    Raises:
        Decision: the candidate fails.
        WorkerDied: the worker process ended.
    """
    prepared = runner.prepared[0]

    def loop(calls: int, flushes: int) -> float:
        runner.renew()
        return statistics.median(runner.loop(calls, flushes))

    with torch.no_grad():
        flushes = timing.flushes_to_hide([runner], runner.flush_us)[runner.name]
        about = loop(FIRST_CALLS, flushes)
        calls = max(FIRST_CALLS, min(100, int(LOOP_US / (about + flushes * runner.flush_us))))
        first = loop(calls, flushes) if calls > FIRST_CALLS else about
        took = min(first, loop(calls, min(2 * flushes, timing.MOST_FLUSHES)))
        flops = count_flops(original.eager)
    least = _roofline_us(original, prepared, flops, roofline)
    return CaseTime(prepared.probe.case, round(took, 3), round(least, 3))


def allowed_difference(policy: Policy, judged: float) -> float:
    """Returns by how many µs the worker's clock may report less than the judge's."""
    return policy.clock_tolerance * judged + 3.0


def _agreement(policy: Policy, single: float) -> Callable[[float, float], bool]:
    """Returns whether two clocks agree: where the judge's shows much less, something else ran beside the overwrites."""

    def agree(judged: float, events: float) -> bool:
        difference = judged - min(events, single)
        return -2 * allowed_difference(policy, events) <= difference <= allowed_difference(policy, judged)

    return agree


def _is_disturbed(policy: Policy, clock: GpuClock, eager: Baseline, median: float, flushes: int) -> bool:
    """Whether the judge's clock and CUDA events do not agree about the original, either."""
    agree = _agreement(policy, median)
    return not agree(*timing.by_the_judge(eager, clock, median, flushes, agree))


def _peak(implementation: timing.Implementation) -> int:
    """Returns the most bytes allocated during a call in this process.

    The judge's other threads wait meanwhile.
    """
    peak = PeakMemory()
    implementation.loop(1)
    return peak.bytes


def _roofline_us(original: OriginalCalls, prepared: PreparedProbe, flops: Flops, roofline: Roofline) -> float:
    dtype = next((str(t.dtype) for t in prepared.expected.original if t.is_floating_point()), "float32")
    return roofline.microseconds(original.bytes, flops, dtype.removeprefix("torch."))

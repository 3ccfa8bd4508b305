"""One case's race on the GPU: the candidate in its worker against eager and ``torch.compile`` in the judge.

Every timed call of the candidate is one order: the judge writes fresh values to the same addresses, poisons the
outputs, and afterwards looks at those it chooses. No call can know whether it is one of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from pytest_kernelllm.core.records import Check, Timing
from pytest_kernelllm.judge.benchmark import timing
from pytest_kernelllm.judge.benchmark.roofline import Roofline, needed_bytes
from pytest_kernelllm.judge.handle import WorkerDied, WorkerHandle
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference.outputs import Exam, Question
from pytest_kernelllm.judge.run import run as trial
from pytest_kernelllm.judge.run.run import Posed, Proceedings
from pytest_kernelllm.judge.shared.buffers import Arena
from pytest_kernelllm.judge.shared.clock import Clock


@dataclass
class Runner:
    """The candidate as a contestant."""

    worker: WorkerHandle
    arena: Arena
    posed: Posed
    questions: Sequence[Question]
    exam: Exam
    found: Proceedings
    dice: random.Random
    name: str = "kernel"
    peak: int = 0
    """Bytes allocated during a call, at most, outputs included."""
    written: Question = field(init=False)
    """Whose values stand in the arena."""

    def __post_init__(self) -> None:
        """The first question has been posed."""
        self.written = self.questions[0]

    def cold(self, flushes: int) -> float:
        """µs of one call by the worker's events; its outputs are checked, or not."""
        self._fresh_values()
        reply = trial.run(
            self.worker, self.arena, self.posed, self.written, self.exam, "timed", flushes=flushes
        )
        took, peak = reply.get("microseconds"), reply.get("peak")
        if not (isinstance(took, float) and 0 < took < 1e9 and isinstance(peak, int)):
            raise WorkerDied("it gave no proper times")
        self.peak = max(self.peak, peak)
        trial.check_launches(reply, f"in the timed loop at {self.written.probe.describe()}", self.found)
        if self.dice.random() < self.exam.policy.recheck_share:
            trial.check_types(reply, self.written, self.found)
            self._recheck()
        return took

    def loop(self, count: int, flushes: int = 0) -> list[float]:
        """µs of ``count`` calls in a row, see ``Clock.many``."""
        self._fresh_values()
        trial.settle(self.arena)
        outputs = [description for _, description in self.posed.outputs]
        reply = self.worker.ask(
            "loop", inputs=[self.posed.arguments], outputs=outputs, count=count, flushes=flushes
        )
        trial.refuse_failure(reply, self.written, f"in the timed loop at {self.written.probe.describe()}")
        events = reply.get("events")
        if not (
            isinstance(events, list) and events and all(isinstance(e, float) and 0 < e < 1e9 for e in events)
        ):
            raise WorkerDied("it gave no proper times")
        self._recheck()
        return events

    def _fresh_values(self) -> None:
        self.written = self.dice.choice(self.questions)
        trial.refill(self.posed, self.written)
        for slab, _ in self.posed.outputs:
            trial.poison(slab)

    def _recheck(self) -> None:
        trial.check_outputs(self.posed, self.written, self.exam, self.found, "recheck")


@dataclass
class Local:
    """A baseline, in the judge's own process."""

    name: str
    call: Callable[[], Any]
    clock: Clock

    def cold(self, flushes: int) -> float:
        """µs of one call."""
        return self.clock.one(self.call, flushes)[1]

    def loop(self, count: int, flushes: int = 0) -> list[float]:
        """µs of calls in a row."""
        return self.clock.many([self.call], count, flushes)[1]


def race(runner: Runner, roofline: Roofline, clock: Clock) -> Timing:
    """Time one case.

    Args:
        runner: its worker has loaded the candidate; the first of its questions is posed and was answered rightly.
        roofline: this GPU's ceilings.
        clock: the judge's.

    Raises:
        Decided: an output was wrong, or the clocks do not agree.
        WorkerDied: the process is gone.
    """
    question, exam, policy = runner.questions[0], runner.exam, runner.exam.policy
    contestants: list[timing.Contestant] = [
        runner,
        Local("eager", _call(question.module, question.arguments), clock),
    ]
    compiled = exam.compiled(question)
    if compiled is not None:
        contestants.append(Local("compiled", _call(compiled, question.arguments), clock))
    with torch.no_grad():
        flushes = timing.flushes_to_hide(contestants, clock.flush_us())
        series = timing.interleave(contestants, flushes, policy, runner.dice)
        steps = series["kernel"].median

        def agree(judged: float, events: float) -> bool:
            return judged - min(events, steps) <= _allowed(policy, judged)

        judged, events = timing.by_the_judge(runner.loop, clock, steps, flushes["kernel"], agree)
        eager_peak = _peak(contestants[1])
        flops = _flops(question)
    _check_clocks(runner, judged, events, steps)
    needed = roofline.least(*needed_bytes(question), flops)
    _check_roofline(runner, min(events, steps), needed)
    dtype = next((str(t.dtype) for t in question.expected.original if t.is_floating_point()), "float32")
    least = roofline.microseconds(question.bytes, flops, dtype.removeprefix("torch."))
    spreads = {name: timing.spread([x for r in s.cold for x in r]) for name, s in series.items()}
    warm = {name: timing.spread(s.warm) for name, s in series.items()}
    return Timing(
        case=question.probe.case,
        kernel=spreads["kernel"],
        eager=spreads["eager"],
        kernel_warm=warm["kernel"],
        eager_warm=warm["eager"],
        speedup=timing.ratio(series["eager"], series["kernel"], policy.between_runs),
        compiled=spreads.get("compiled"),
        compiled_warm=warm.get("compiled"),
        speedup_compiled=timing.ratio(series["compiled"], series["kernel"], policy.between_runs)
        if compiled is not None
        else None,
        judge_clock=round(judged, 3),
        event_clock=round(events, 3),
        bytes=question.bytes,
        flops=flops,
        roofline=round(least, 3),
        roofline_share=round(min(least / spreads["kernel"].p50, 9.99), 4),
        kernel_peak=runner.peak,
        eager_peak=eager_peak,
    )


def _check_clocks(runner: Runner, judged: float, events: float, steps: float) -> None:
    """The worker's events must not say less than the judge's clock does, neither in loops nor in single calls."""
    said = min(events, steps)
    allowed = _allowed(runner.exam.policy, judged)
    agree = judged - said <= allowed
    detail = (
        ""
        if agree
        else f"the worker's clock says {said:.1f} µs a call, the judge's {judged:.1f} µs, at {runner.questions[0].probe.describe()}"
    )
    check = Check("clocks agree", agree, round(judged - said, 3), round(allowed, 3), detail)
    runner.found.check("timing", "clocks", check)


def _allowed(policy: Policy, judged: float) -> float:
    """µs that the worker's clock may say less than the judge's."""
    return policy.clock_tolerance * judged + 3.0


def _check_roofline(runner: Runner, claimed: float, needed: float) -> None:
    """No call is faster than the GPU can move what must be moved."""
    least = needed * runner.exam.policy.roofline_slack
    possible = claimed >= least
    detail = (
        ""
        if possible
        else f"a call takes {claimed:.1f} µs, but to move the bytes it must this GPU needs {needed:.1f} µs"
    )
    check = Check("slower than the roofline", possible, round(claimed, 3), round(least, 3), detail)
    runner.found.check("timing", "roofline", check)


def _call(module: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[], Any]:
    return lambda: module(**arguments)


def _peak(contestant: timing.Contestant) -> int:
    """Bytes allocated during a call in this process, at most. Other threads of the judge wait meanwhile."""
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    contestant.loop(1)
    return max(int(torch.cuda.max_memory_allocated() - held), 0)


def _flops(question: Question) -> int:
    with FlopCounterMode(display=False) as counter:
        question.module(**question.arguments)
    return int(counter.get_total_flops())

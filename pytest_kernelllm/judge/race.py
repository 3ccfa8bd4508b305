"""One case's race on the GPU: the candidate in its worker against eager and ``torch.compile`` in the judge."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from pytest_kernelllm.judge import timing
from pytest_kernelllm.judge.exam import Exam, Question
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.slabs import Arena
from pytest_kernelllm.judge.state import plain
from pytest_kernelllm.judge.supervisor import WorkerDied, WorkerHandle
from pytest_kernelllm.records import Check, Timing


@dataclass(frozen=True)
class RaceResult:
    """The figures of a race, and the checks on the clocks that gave them."""

    timing: Timing
    checks: tuple[Check, ...]


def race(
    worker: WorkerHandle,
    arena: Arena,
    question: Question,
    exam: Exam,
    policy: Policy,
    roofline: timing.Roofline,
    order: random.Random,
) -> RaceResult:
    """Time one question. ``worker`` has loaded the candidate and holds the question's state."""
    laps = [_lap(question, arena) for _ in range(2)]
    torch.cuda.synchronize()

    def in_worker(count: int, cold: bool) -> list[float]:
        reply = worker.ask("time", inputs=laps, count=count, cold=cold)
        events = reply.get("events")
        if not (
            isinstance(events, list) and events and all(isinstance(e, float) and 0 < e < 1e9 for e in events)
        ):
            raise WorkerDied("it gave no proper times")
        return events

    copies = [
        question.arguments,
        {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in question.arguments.items()},
    ]
    candidate = timing.Contestant("kernel", in_worker)
    eager = timing.local("eager", [_call(question.module, a) for a in copies])
    contestants = [candidate, eager]
    compiled = exam.compiled(question)
    if compiled is not None:
        contestants.append(timing.local("compiled", [_call(compiled, a) for a in copies]))
    with torch.no_grad():
        series = timing.interleave(contestants, policy, order)
    spreads = {name: timing.spread([x for r in s.cold for x in r]) for name, s in series.items()}
    warm = {name: timing.spread(s.warm) for name, s in series.items()}
    judged, events = timing.by_the_judge(in_worker, warm["kernel"].p50)
    moved = question.bytes
    flops = _flops(question)
    dtype = next(
        (str(t.dtype).removeprefix("torch.") for t in question.expected.original if t.is_floating_point()),
        "float32",
    )
    least = roofline.microseconds(moved, flops, dtype)
    result = Timing(
        case=question.probe.case,
        kernel=spreads["kernel"],
        eager=spreads["eager"],
        kernel_warm=warm["kernel"],
        eager_warm=warm["eager"],
        speedup=timing.ratio(series["eager"], series["kernel"]),
        compiled=spreads.get("compiled"),
        compiled_warm=warm.get("compiled"),
        speedup_compiled=timing.ratio(series["compiled"], series["kernel"]) if compiled is not None else None,
        judge_clock=round(judged, 3),
        event_clock=round(events, 3),
        bytes=moved,
        flops=flops,
        roofline=round(least, 3),
        roofline_share=round(min(least / spreads["kernel"].p50, 9.99), 4),
    )
    gap = abs(judged - events)
    allowed = policy.clock_tolerance * max(judged, events) + 3.0
    agree = gap <= allowed
    checks = (
        Check(
            "clocks agree",
            agree,
            gap,
            allowed,
            "" if agree else f"the worker's clock says {events:.1f} µs a call, the judge's {judged:.1f} µs",
        ),
    )
    return RaceResult(result, checks)


def _lap(question: Question, arena: Arena) -> dict[str, Any]:
    """One set of inputs in the arena, as the worker reads it."""
    lap: dict[str, Any] = {}
    for name, value in question.arguments.items():
        if isinstance(value, torch.Tensor):
            slab, description = arena.slab(value.shape, value.dtype)
            slab.copy_(value)
            lap[name] = {"slab": description}
        else:
            plain(lap, name, value)
    return lap


def _call(module: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[], Any]:
    return lambda: module(**arguments)


def _flops(question: Question) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        question.module(**question.arguments)
    return int(counter.get_total_flops())

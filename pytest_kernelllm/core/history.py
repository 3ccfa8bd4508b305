"""The records of history: how adopted kernels did in earlier runs, and what has changed since."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelllm_judge.core.records import Environment, Ratio, Record, Timing


@dataclass(frozen=True)
class RecordedKernel(Record):
    """How one adopted kernel did in a run."""

    target: str
    """``Target.id``"""
    source_hash: str
    inputs: str
    """Fingerprint of the inputs that a conftest gives; empty: the marker's."""
    kernel_hash: str
    correct: bool
    timing: tuple[Timing, ...] = ()
    slower: bool = False
    """Whether it was slower than the run that it was compared with. Then it is no reference for later runs."""


@dataclass(frozen=True)
class Run(Record):
    """What the store keeps of one run: its adopted kernels."""

    id: str
    """Starts with the UTC time, so that runs sort by age."""
    name: str
    """Name given by ``--kernelllm-save``; empty for other runs."""
    created: str
    """UTC time, ISO 8601."""
    environment: Environment
    kernels: tuple[RecordedKernel, ...]


@dataclass(frozen=True)
class Point(Record):
    """One measurement of an adopted kernel in its history."""

    run: str
    """``Run.id``; empty for the run that makes the report, where no earlier one measured the same."""
    name: str
    created: str
    """UTC time, ISO 8601; empty as ``run`` is."""
    environment: Environment
    kernel_hash: str
    correct: bool
    speedup: Ratio | None
    """Against eager: the geometric mean over the cases; None without a GPU."""
    slower: bool


@dataclass(frozen=True)
class CaseChange(Record):
    """The speed of an adopted kernel on one case, when it was recorded and now. Times are medians in µs, cold L2."""

    case: str
    recorded: Ratio
    """The speedup against eager that was recorded."""
    now: Ratio
    change: Ratio
    """``now`` over ``recorded``, with its 95 % confidence interval."""
    kernel: tuple[float, float]
    """When it was recorded, and now."""
    eager: tuple[float, float]
    slower: bool
    """Whether the whole interval of ``change`` lies below what is allowed."""


@dataclass(frozen=True)
class Comparison(Record):
    """An adopted kernel beside the recorded run that it is compared with, on the same GPU model."""

    run: str
    """``Run.id``"""
    name: str
    created: str
    since: tuple[str, ...]
    """The differences, such as ``torch 2.11.0 -> 2.13.0``."""
    cases: tuple[CaseChange, ...]

    @property
    def worst(self) -> CaseChange:
        """The case that lost most of its speed."""
        return min(self.cases, key=lambda each: (not each.slower, each.change.value))

    @property
    def slower(self) -> bool:
        """Whether the kernel is slower than recorded on some case."""
        return any(case.slower for case in self.cases)


@dataclass(frozen=True)
class History(Record):
    """What earlier runs recorded about an adopted kernel's target as it is now, on this GPU model."""

    inputs: str = ""
    """``RecordedKernel.inputs`` of this run."""
    points: tuple[Point, ...] = ()
    """The latest measurements, oldest first, this run's included."""
    comparison: Comparison | None = None
    note: str = ""
    """One sentence: how the kernel has become slower or wrong, or why it was not compared. Empty otherwise."""

    @property
    def slower(self) -> bool:
        """Whether the kernel is slower than recorded."""
        return self.comparison is not None and self.comparison.slower


def changes(recorded: Sequence[Timing], now: Sequence[Timing], allowed: float) -> tuple[CaseChange, ...]:
    """Compares timings of the same cases at the same sizes; other cases are left out.

    Args:
        recorded: of the earlier run.
        now: of this run.
        allowed: share of the recorded speedup that may be lost, 0 to 1.
    """
    # ``note`` says at which sizes a case was timed, where these are not its own.
    earlier = {(timing.name, timing.bytes, timing.note): timing for timing in recorded}
    found = []
    for timing in now:
        before = earlier.get((timing.name, timing.bytes, timing.note))
        if before is None or not (_sound(timing.speedup) and _sound(before.speedup)):
            continue
        change = ratio_of(timing.speedup, before.speedup)
        found.append(
            CaseChange(
                timing.name,
                before.speedup,
                timing.speedup,
                change,
                (before.kernel.p50, timing.kernel.p50),
                (before.eager.p50, timing.eager.p50),
                slower=change.high < 1 - allowed,
            )
        )
    return tuple(found)


def _sound(ratio: Ratio) -> bool:
    return 0 < ratio.low <= ratio.value <= ratio.high < math.inf


def ratio_of(now: Ratio, before: Ratio) -> Ratio:
    """Returns the quotient of two independent measurements; the widths of their intervals add in quadrature, as logarithms."""
    value = now.value / before.value
    down = math.hypot(math.log(now.value / now.low), math.log(before.high / before.value))
    up = math.hypot(math.log(now.high / now.value), math.log(before.value / before.low))
    return Ratio(value, value * math.exp(-down), value * math.exp(up))


def differences(before: Environment, now: Environment) -> tuple[str, ...]:
    """Returns which versions are different, such as ``torch 2.11.0 -> 2.13.0``."""
    names = {"torch": "torch", "triton": "triton", "driver": "driver", "python": "Python", "policy": "policy"}
    pairs = ((label, getattr(before, name), getattr(now, name)) for name, label in names.items())
    return tuple(f"{label} {old} -> {new}" for label, old, new in pairs if old != new)


def slower_than_recorded(comparison: Comparison) -> str:
    """Returns the sentence about the case that lost most of its speed."""
    worst = comparison.worst
    where = f" in case {worst.case}" if len(comparison.cases) > 1 else ""
    since = f" since {', '.join(comparison.since)}" if comparison.since else " with the same versions"
    (kernel, kernel_now), (eager, eager_now) = worst.kernel, worst.eager
    return (
        f"slower than recorded: {worst.recorded.value:.2f}x -> {worst.now.value:.2f}x{where}{since}; the kernel takes "
        f"{kernel:.4g} -> {kernel_now:.4g} µs, eager {eager:.4g} -> {eager_now:.4g} µs (run {comparison.run})"
    )

"""Times the chosen way beside what people run, in one run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernelllm_judge.core.records import Ratio
from kernelllm_judge.target.errors import in_one_line
from pytest_kernelllm.beside.optimize.turns import confident, in_turns
from pytest_kernelllm.beside.optimize.whole import COMPILED
from pytest_kernelllm.beside.whole.answer import CHOSEN, WayAnswer
from pytest_kernelllm.beside.whole.errors import Reference, floating
from pytest_kernelllm.beside.whole.stage import Call, Stage

ROUNDS = 41


@dataclass(frozen=True)
class Compared:
    """Ways that were timed in one run."""

    ways: Mapping[str, WayAnswer]
    """By name, with errors, or with why they do not run."""
    taken: Mapping[str, Sequence[float]]
    """Seconds of each round."""

    def gain(self, name: str, over: str) -> Ratio | None:
        """Returns how many times as fast one way is as another; None if one of them was not timed."""
        both = name in self.taken and over in self.taken
        return confident(self.taken[over], self.taken[name]) if both else None

    def beside(self, name: str) -> tuple[WayAnswer, ...]:
        """Returns all ways with their ratio to one of them, which comes last, as the chosen one."""
        others = [each for each in self.ways.values() if each.name != CHOSEN]
        with_ratios = (replace(self._timed(each), ratio=self.gain(name, each.name)) for each in others)
        return (*with_ratios, replace(self._timed(self.ways[name]), name=CHOSEN))

    def _timed(self, way: WayAnswer) -> WayAnswer:
        times = self.taken.get(way.name)
        return replace(way, ms=statistics.median(times) / COMPILED.timed * 1e3) if times else way


def compared(
    stage: Stage, reference: Reference, calls: Mapping[str, Call | None], seconds: float
) -> Compared:
    """Times ways in turns.

    Args:
        calls: the model's call in each way; None for its own.
        seconds: about what timing may take.
    """
    found = {name: measured_error(stage, reference, name, call) for name, call in calls.items()}
    names = [name for name, way in found.items() if not way.reason]

    def one(way: int) -> float:
        return stage.seconds(calls[names[way]])

    per_run = (COMPILED.untimed + COMPILED.timed) / COMPILED.timed
    taken = in_turns(one, len(names), calls=per_run, rounds=ROUNDS, most=seconds) if names else []
    return Compared(found, dict(zip(names, taken, strict=True)))


def measured_error(stage: Stage, reference: Reference, name: str, call: Call | None) -> WayAnswer:
    """Returns a way with its error, or with why it does not run. Runs it three times, so that it is warm."""
    try:
        for _ in range(2):
            stage.run(call)
        return WayAnswer(name, error=reference.error(floating(stage.run(call))))
    except Exception as failure:  # a compiler's error, or too little memory
        return WayAnswer(name, reason=f"it fails: {in_one_line(failure)}")

"""Compares adopted kernels with recorded runs, and records this one."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import Environment, Target, Verdict, mean_ratio
from pytest_kernelllm.config.settings import share
from pytest_kernelllm.core.history import (
    Comparison,
    History,
    Point,
    RecordedKernel,
    Run,
    changes,
    differences,
    slower_than_recorded,
)
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.session.context import Context

LATEST, OFF = "latest", "off"

SHOWN = 20
"""Measurements of a history that reports show."""


class Recorded(NamedTuple):
    """One kernel of one run."""

    run: Run
    kernel: RecordedKernel

    @property
    def is_reference(self) -> bool:
        """Whether later runs are compared with it: it was no step back, or somebody named the run."""
        return not self.kernel.slower or bool(self.run.name)

    @property
    def point(self) -> Point:
        """The measurement in the target's history."""
        run, kernel = self
        speedup = mean_ratio([timing.speedup for timing in kernel.timing])
        return Point(
            run.id,
            run.name,
            run.created,
            run.environment,
            kernel.kernel_hash,
            kernel.correct,
            speedup,
            kernel.slower,
        )

    def concerns(self, target: Target, inputs: str) -> bool:
        """Whether it was measured with the target as it is now."""
        return (self.kernel.source_hash, self.kernel.inputs) == (target.source_hash, inputs)


class Histories:
    """The recorded runs, as far as they concern this one."""

    def __init__(self, context: Context) -> None:
        """Prepares; files are read when they are asked for."""
        self._context = context
        self._compare = context.settings.compare
        self._allowed = share(context.settings.compare_fail)

    @cached_property
    def _runs(self) -> list[Run]:
        return list(self._context.store.runs)

    @cached_property
    def _chosen(self) -> Run | None:
        """The run that the settings name; None for the latest."""
        if self._compare in (LATEST, OFF):
            return None
        named = [run for run in self._runs if run.name == self._compare]
        found = named[-1:] or [run for run in self._runs if run.id.startswith(self._compare)]
        if len(found) != 1:
            count = len(found) or "no"
            raise SessionError(
                f"`compare` is {self._compare!r}, but {count} recorded runs have this name, or an id that starts so; "
                "`kernelllm store runs` lists them."
            )
        return found[0]

    def check(self) -> None:
        """Looks up the run that the settings name."""
        _ = self._chosen

    def of(self, target: Target, verdict: Verdict) -> History:
        """Returns the history of a target's adopted kernel, which has this verdict now."""
        inputs = self._context.inputs(target)
        if self._compare == OFF:
            return History(inputs)
        every = (Recorded(run, kernel) for run in self._runs for kernel in run.kernels)
        own = [each for each in every if each.kernel.target == target.id]
        known = [each for each in own if each.concerns(target, inputs)]
        here = [each for each in known if _gpu(each.run.environment) == _gpu(verdict.environment)]
        comparison, note = self._compared(own, known, here, verdict)
        history = History(inputs, (), comparison, note)
        points = [each.point for each in here]
        now = _measured(verdict.environment, _kernel(target, verdict, history))
        if now not in [_measured(each.run.environment, each.kernel) for each in here]:
            points.append(_point_now(verdict, history.slower))
        return replace(history, points=tuple(points[-SHOWN:]))

    def _compared(
        self, own: Sequence[Recorded], known: Sequence[Recorded], here: Sequence[Recorded], verdict: Verdict
    ) -> tuple[Comparison | None, str]:
        """Returns the comparison, if there is one, and the sentence about it."""
        if verdict.verdict == "inconclusive":
            return None, ""
        if not verdict.correct:
            return None, _wrong_since(here, verdict)
        chosen = self._chosen
        timed = [each for each in known if (each.run == chosen if chosen else each.is_reference)]
        timed = [each for each in timed if each.kernel.correct and each.kernel.timing]
        if not timed:
            return None, self._nothing_recorded(own)
        if not verdict.timing:
            return None, self._not_timed(timed[-1])
        same = [each for each in timed if each in here]
        if not same:
            gpus = ", ".join(dict.fromkeys(each.run.environment.gpu for each in timed))
            return (
                None,
                f"not compared: no recorded run on this GPU, {verdict.environment.gpu} (recorded on {gpus})",
            )
        reference = same[-1]
        cases = changes(reference.kernel.timing, verdict.timing, self._allowed)
        if not cases:
            return None, f"not compared: run {reference.run.id} has no case of these sizes"
        run = reference.run
        comparison = Comparison(run.id, run.name, run.created, _since(reference, verdict), cases)
        return comparison, slower_than_recorded(comparison) if comparison.slower else ""

    def record(self, outcomes: Sequence[Outcome], name: str = "") -> Run | None:
        """Remembers how adopted kernels did; without a name only what no run has measured before.

        Returns:
            The run; None if there was nothing to remember, or it cannot be written.
        """
        if self._compare == OFF and not name:
            return None
        environment = self._context.environment
        kernels = [
            _kernel(o.target, o.verdict, o.history)
            for o in outcomes
            if o.history and o.verdict and o.verdict.verdict != "inconclusive"
        ]
        if not name:
            known = {_measured(run.environment, kernel) for run in self._runs for kernel in run.kernels}
            kernels = [each for each in kernels if _measured(environment, each) not in known]
        if not kernels:
            return None
        now = datetime.datetime.now(datetime.UTC)
        identity = f"{now:%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
        created = now.isoformat(timespec="seconds")
        run = Run(identity, name, created, environment, tuple(kernels))
        return run if self._context.store.runs.put(run) else None

    def _nothing_recorded(self, own: Sequence[Recorded]) -> str:
        if self._chosen is not None:
            return f"not compared: run {self._compare} has no time of this module as it is now"
        if any(each.kernel.timing for each in own):
            return "not compared: the module or its inputs have changed since they were recorded"
        return ""

    def _not_timed(self, reference: Recorded) -> str:
        why = "there is no GPU" if self._context.settings.timing else "timing is off"
        recorded = reference.point.speedup
        assert recorded is not None
        where = reference.run.environment.gpu
        return f"{why}, so not compared with the recorded {recorded.value:.2f}x on {where}"


def _gpu(environment: Environment) -> tuple[str, str]:
    return environment.device, environment.gpu


def _wrong_since(here: Sequence[Recorded], verdict: Verdict) -> str:
    """Returns what has changed since a kernel that is wrong now was right; empty where it never was."""
    right = [each for each in here if each.kernel.correct]
    if not right:
        return ""
    since = ", ".join(_since(right[-1], verdict)) or "no version"
    return f"it was right in run {right[-1].run.id}; since then changed: {since}"


def _since(reference: Recorded, verdict: Verdict) -> tuple[str, ...]:
    found = differences(reference.run.environment, verdict.environment)
    before, now = reference.kernel.kernel_hash, verdict.kernel_hash
    return found if before == now else (*found, f"kernel {before[:12]} -> {now[:12]}")


def _point_now(verdict: Verdict, slower: bool) -> Point:
    return Point(
        "", "", "", verdict.environment, verdict.kernel_hash, verdict.correct, verdict.speedup, slower
    )


def _kernel(target: Target, verdict: Verdict, history: History) -> RecordedKernel:
    return RecordedKernel(
        target.id,
        target.source_hash,
        history.inputs,
        verdict.kernel_hash,
        verdict.correct,
        verdict.timing,
        history.slower,
    )


def _measured(environment: Environment, kernel: RecordedKernel) -> tuple[Environment, RecordedKernel]:
    """What was measured, and where, whatever it was compared with."""
    return environment, replace(kernel, slower=False)

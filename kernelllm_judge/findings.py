"""Collects what the judge finds out about one candidate, and defines the decision that ends its judging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelllm_judge.core.records import Check, Stage, Status, Timing
from kernelllm_judge.durations import Durations


class Decision(Exception):
    """Ends the judging of a candidate with a verdict other than acceptance."""

    def __init__(self, verdict: Status, stage: Stage, reason: str, rule: str = "") -> None:
        """``reason`` is one sentence for people; ``rule`` names the rule that a rejected candidate broke."""
        super().__init__(reason)
        self.verdict, self.stage, self.reason, self.rule = verdict, stage, reason, rule
        self.on_full_disk: bool | None = None
        """Whether the disk was full while its worker ran; None: not noted yet."""


class OutOfMemory(Decision):
    """A worker ran out of GPU memory while little was free, so the candidate may not be at fault."""

    def __init__(self, what: str, stage: Stage = "run") -> None:
        """``what`` there was too little for, as in "for a call at default, n=8"."""
        super().__init__(
            "inconclusive",
            stage,
            f"there was too little GPU memory {what}; free some, or declare `dims` that reach lower",
        )


class OutOfTime(Decision):
    """A worker missed its deadline."""

    def __init__(self, reason: str) -> None:
        """``reason`` is one sentence for people."""
        super().__init__("rejected", "run", reason, "run")


class WorkerKilled(Decision):
    """A signal ended a worker: the candidate's own fault, or somebody outside."""

    def __init__(self, reason: str) -> None:
        """``reason`` is one sentence for people."""
        super().__init__("rejected", "run", reason, "run")


class WorkerNotReady(Decision):
    """A worker ended before it loaded the candidate, which is not at fault."""

    def __init__(self, how: str) -> None:
        """``how`` it ended."""
        super().__init__("inconclusive", "load", f"a worker process could not start: {how}")


@dataclass
class Findings:
    """The checks, timings and cases recorded for one candidate."""

    rules: Mapping[str, Stage]
    """The rules in force by name, each with the stage at which it rejects."""
    checks: list[Check] = field(default_factory=list)
    timing: list[Timing] = field(default_factory=list)
    cases: list[str] = field(default_factory=list)
    """Names of the cases with a discriminating probe."""
    durations: Durations = field(default_factory=Durations)
    """What the judging took."""
    undecided: str = ""
    """Why a candidate that breaks no rule is not accepted either; the first reason of several."""

    def record(self, rule: str, check: Check) -> None:
        """Records a check made under ``rule``, if that rule is in force.

        Of checks with one name, keeps the worst.

        Raises:
            Decision: the check failed, so the candidate is rejected.
        """
        if rule not in self.rules:
            return
        if not check.passed:
            self.checks.append(check)
            raise Decision("rejected", self.rules[rule], check.detail, rule)
        same = next((i for i, seen in enumerate(self.checks) if seen.name == check.name), None)
        if same is None:
            self.checks.append(check)
        elif isinstance(check.measured, float) and check.measured > float(self.checks[same].measured or 0):
            self.checks[same] = check

    def require(self, rule: str, name: str, passed: bool, broken: str) -> None:
        """Records a check without a measured number; ``broken`` is the reason for a rejection if it failed.

        Raises:
            Decision: the check failed.
        """
        self.record(rule, Check(name, passed, None, None, "" if passed else broken))

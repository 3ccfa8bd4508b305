"""Collects what the judge finds out about one candidate and how long it took, and how its judging ends."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelllm_judge.core.records import Certificate, Check, Stage, Status, Timing
from kernelllm_judge.core.spans import Recorder
from kernelllm_judge.coverage.device import Site, Sites

WAITING = "waiting for the GPU"
"""The part in which others hold it."""


class Durations:
    """Adds up the seconds of named parts. Time inside an inner part does not count for the outer one."""

    def __init__(self, recorder: Recorder | None = None, target: str = "") -> None:
        """Nothing is measured yet. The recorder gets each part as a span, for a target."""
        self._recorder, self._target = recorder or Recorder(), target
        self.seconds: dict[str, float] = {}
        """By name, in the order of their first ends."""
        self._inside = [0.0]
        """For each open part, the seconds of the parts inside it."""

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A context whose time counts for ``name``. Not thread-safe."""
        start = time.perf_counter()
        self._inside.append(0.0)
        try:
            with self._recorder.span(name, self._target):
                yield
        finally:
            whole = time.perf_counter() - start
            own = whole - self._inside.pop()
            self._inside[-1] += whole
            self.seconds[name] = self.seconds.get(name, 0.0) + own

    def add(self, name: str, seconds: float) -> None:
        """Adds seconds that were measured elsewhere, outside all parts, if there are any."""
        if seconds:
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def beside(self) -> Durations:
        """Returns those of another thread that works for the same verdict."""
        return Durations(self._recorder, self._target)

    def rounded(self) -> dict[str, float]:
        """Returns the seconds to the millisecond, the longest first."""
        longest = sorted(self.seconds.items(), key=lambda item: -item[1])
        return {name: round(seconds, 3) for name, seconds in longest}


class Decision(Exception):
    """Ends the judging of a candidate with a verdict other than acceptance."""

    def __init__(self, verdict: Status, stage: Stage, reason: str, rule: str = "") -> None:
        """``reason`` is one sentence for people; ``rule`` names the rule that a rejected candidate broke."""
        super().__init__(reason)
        self.verdict, self.stage, self.reason, self.rule = verdict, stage, reason, rule
        self.on_full_disk: bool | None = None
        """Whether the disk was full while its worker ran; None: not noted yet."""
        self.probe: Any = None
        """The probe at which its worker called the candidate last; None: at none."""


class OriginalError(Exception):
    """The original itself fails or cannot be judged at a probe; the text says why."""


class OutOfMemory(Decision):
    """A worker ran out of GPU memory while little was free, so the candidate may not be at fault."""

    def __init__(self, what: str, stage: Stage = "run") -> None:
        """``what``: the purpose for which there was too little, as in "for a call at default, n=8"."""
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
        """``how``: the way in which it ended."""
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
    decided: dict[int, set[bool | int | str]] = field(default_factory=dict)
    """By the number of a decision in the candidate's Python code: its outcomes in calls that were compared."""
    in_backward: set[int] = field(default_factory=set)
    """Those that were made in a backward pass, too."""
    reported: list[tuple[int, bool | int | str, bool]] = field(default_factory=list)
    """What the worker reports of the last call: decisions, their outcomes, and whether in a backward pass."""
    fence: str = ""
    """The candidate with the original in place of what no probe ran, where that is why it is not accepted."""
    certificate: Certificate | None = None
    """What is shown of the addresses of its kernels."""
    sites: Sites = field(default_factory=Sites)
    """How its kernels' decisions fell in calls that were compared, in Triton's interpreter."""
    directed: list[Any] = field(default_factory=list)
    """Where the candidate runs on a GPU: probes at which they fell as at no others in the interpreter, to be run there."""
    left: list[Site] = field(default_factory=list)
    """Decisions of which one outcome was not seen at any probe."""
    mutants: list[Any] = field(default_factory=list)
    """Changes of the candidate that no probe told from it, see ``mutants``."""
    probe: Any = None
    """The probe at which the candidate was called last."""
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

    def count_decisions(self) -> None:
        """Counts the decisions of the last call, whose outputs have been compared and were right."""
        for number, outcome, backward in self.reported:
            self.decided.setdefault(number, set()).add(outcome)
            if backward:
                self.in_backward.add(number)

    def require(self, rule: str, name: str, passed: bool, broken: str) -> None:
        """Records a check without a measured number; ``broken`` is the reason for a rejection if it failed.

        Raises:
            Decision: the check failed.
        """
        self.record(rule, Check(name, passed, None, None, "" if passed else broken))


COMPILER_HIT = "PassManager::run failed"
"""Triton's error where a pass failed, also by a signal: LLVM catches SIGSEGV while it compiles."""

FULL_DISK = os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT)
"""In the texts of errors that are not the candidate's fault."""

FAILURES = frozenset(("load", "run", "compile"))
"""Rules by which a candidate is rejected because it fails. Where the disk is full, so do the compilers that Triton calls."""


@dataclass(frozen=True)
class Outcome:
    """How the judging of a candidate ended."""

    findings: Findings
    verdict: Status
    stage: Stage
    reason: str = ""
    rule: str = ""
    out_of_memory: bool = False
    """Whether it might have ended in another way with more GPU memory."""
    process_lost: bool = False
    """Whether a process ended that may have been killed from outside."""
    probe: Any = None
    """The probe at which it ended; None: at none."""


def outcome_of(end: Exception, findings: Findings) -> Outcome:
    """Returns the outcome of judging that one of ``judging.ENDS`` ended."""
    if isinstance(end, OriginalError):
        return Outcome(findings, "inconclusive", "correctness", f"{end}")
    if isinstance(end, torch.OutOfMemoryError):
        reason = "the judge ran out of GPU memory; free some or declare smaller `dims`"
        return Outcome(findings, "inconclusive", "correctness", reason, out_of_memory=True)
    if not isinstance(end, Decision):
        raise end
    lost = isinstance(end, WorkerKilled | WorkerNotReady) or COMPILER_HIT in end.reason
    named = any(text in end.reason for text in FULL_DISK)
    if end.verdict == "rejected" and end.rule in FAILURES and (named or end.on_full_disk):
        reason = end.reason if named else f"{end.reason}; {FULL_DISK[0]}"
        return Outcome(findings, "inconclusive", end.stage, reason, process_lost=lost)
    out_of_memory = isinstance(end, OutOfMemory)
    return Outcome(findings, end.verdict, end.stage, end.reason, end.rule, out_of_memory, lost, end.probe)

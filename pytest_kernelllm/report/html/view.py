"""What the page shows of a report: one row a target, with what its template would have to compute."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from kernelllm_judge.core.records import Ratio, Verdict
from pytest_kernelllm.core.history import Point
from pytest_kernelllm.core.narrow import narrow
from pytest_kernelllm.report.html.code import difference, highlighted, wrong_line
from pytest_kernelllm.report.read import Report, ReportedCandidate, ReportedTarget
from pytest_kernelllm.report.spent import Spent, spent
from pytest_kernelllm.report.worst import MeasuredError, worst_error

State = Literal["good", "bad", "open", "none"]
"""Something to use or in use; something wrong; undecided; nothing there."""


@dataclass(frozen=True)
class CandidateView:
    """One candidate of a target."""

    anchor: str
    reported: ReportedCandidate
    state: State
    word: str
    """The verdict in words: ``accepted``, ``too slow``…"""
    suggested: bool
    source: Markup
    """Empty where there is no candidate."""
    line: int | None
    """The line that is wrong, where the verdict names one."""
    difference: Markup
    """From the suggestion to this candidate; empty for the suggestion itself, and where there is none."""

    @property
    def why(self) -> str:
        """Why it was not accepted, in one sentence."""
        return self.reported.verdict.reason if self.reported.verdict else self.reported.reason


@dataclass(frozen=True)
class TargetView:
    """One target."""

    anchor: str
    reported: ReportedTarget
    state: State
    result: str
    why: str
    """Why there is nothing to use, in one sentence; empty otherwise."""
    narrow: Mapping[str, str]
    """Where it runs less far than its owner may think, in a few words, each with a sentence."""
    verified: int
    tried: int
    shown: Verdict | None
    """The verdict behind the row's figures: the suggestion's, else the adopted kernel's, else the fastest correct one."""
    error: MeasuredError | None
    original: Markup
    """Its class's text; empty where it was not found."""
    candidates: tuple[CandidateView, ...]

    @property
    def first(self) -> CandidateView | None:
        """The candidate to show first: the suggestion, else the first with a text."""
        own = [each for each in self.candidates if each.source]
        return next((each for each in own if each.suggested), own[0] if own else None)

    @property
    def history(self) -> tuple[Point, ...]:
        """The latest measurements of the adopted kernel, oldest first; empty where no earlier run recorded any."""
        points = self.reported.history.points if self.reported.history else ()
        return points[-20:] if any(point.run for point in points) else ()

    @property
    def roofline(self) -> float | None:
        """Share of the roofline: the geometric mean over the cases."""
        shares = [timing.roofline_share for timing in self.shown.timing] if self.shown else []
        return math.prod(shares) ** (1 / len(shares)) if shares and min(shares) > 0 else None


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis for speedups that the bars of all rows share."""

    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[Ratio]) -> Scale:
        """Returns the scale that shows all of them, and the range from 0.5 to 2."""
        usable = [r for r in ratios if 0 < r.low <= r.high < math.inf]
        return cls(min([0.5, *(r.low for r in usable)]), max([2.0, *(r.high for r in usable)]))

    def place(self, value: float) -> float:
        """Returns where a speedup stands: per cent of the width from the left."""
        inside = min(max(value, self.low), self.high) if value == value else 1.0
        return round(100 * math.log(inside / self.low) / math.log(self.high / self.low), 2)


@dataclass(frozen=True)
class PageView:
    """The whole page."""

    report: Report
    targets: tuple[TargetView, ...]
    scale: Scale
    timed: bool
    """Whether anything was timed."""
    rejections: tuple[tuple[str, int], ...]
    """How many candidates broke each rule, the most frequent first."""
    words: tuple[tuple[State, str, int], ...]
    """How many candidates have each verdict."""
    spent: tuple[Spent, ...]

    @property
    def recorded(self) -> bool:
        """Whether an adopted kernel has a history."""
        return any(target.history for target in self.targets)


def view(report: Report) -> PageView:
    """Returns what the page shows."""
    targets = tuple(_target(number, each) for number, each in enumerate(report.targets, 1))
    shown = [target.shown for target in targets if target.shown]
    candidates = [candidate for target in targets for candidate in target.candidates]
    counts = Counter((candidate.state, candidate.word) for candidate in candidates)
    rejected = (c.reported.verdict for c in candidates if c.reported.verdict)
    ratios = [r for v in shown for r in (v.speedup, v.speedup_compiled) if r is not None]
    recorded = [p.speedup for target in targets for p in target.history if p.speedup is not None]
    return PageView(
        report,
        targets,
        Scale.of([*ratios, *recorded]),
        bool(ratios),
        tuple(Counter(v.rule for v in rejected if v.rule).most_common()),
        tuple((state, word, number) for (state, word), number in sorted(counts.items(), key=_order)),
        tuple(spent(candidate.reported for candidate in candidates)),
    )


def _order(counted: tuple[tuple[State, str], int]) -> tuple[int, str]:
    (state, word), _ = counted
    return ("good", "bad", "open", "none").index(state), word


def _target(number: int, entry: ReportedTarget) -> TargetView:
    anchor = f"target-{number}"
    candidates = tuple(
        _candidate(f"{anchor}-{i}", each, entry.winner) for i, each in enumerate(entry.candidates, 1)
    )
    verdicts = [each.verdict for each in entry.candidates if each.verdict]
    right = [verdict for verdict in verdicts if verdict.correct]
    usable = entry.winner or entry.adopted
    shown = usable.verdict if usable else max(right, key=_speed, default=None)
    state, result = _result(entry)
    original = entry.original
    return TargetView(
        anchor,
        entry,
        state,
        result,
        _why(entry, candidates, shown) if state != "good" else "",
        narrow(entry.target, usable.source) if usable and state == "good" else {},
        len(right),
        len(verdicts),
        shown,
        worst_error(shown),
        highlighted(original.text, original.line) if original else Markup(),
        candidates,
    )


def _speed(verdict: Verdict) -> float:
    return verdict.speedup.value if verdict.speedup else 0.0


def _why(entry: ReportedTarget, candidates: Sequence[CandidateView], shown: Verdict | None) -> str:
    note = entry.history.note if entry.history else ""
    nearest = shown.reason if shown else ""
    return note or nearest or next((each.why for each in candidates if each.why), "")


def _result(entry: ReportedTarget) -> tuple[State, str]:
    if entry.adopted is not None:
        state, word = _adopted(entry)
        return state, f"{word}; patch" if entry.patch else word
    if entry.winner is not None:
        return "good", "patch" if entry.patch else "verified"
    verdicts = [candidate.verdict for candidate in entry.candidates if candidate.verdict]
    if any(verdict.correct for verdict in verdicts):
        return "bad", "too slow"
    if any(verdict.verdict == "rejected" for verdict in verdicts):
        return "bad", "rejected"
    return ("open", "inconclusive") if verdicts else ("none", "no candidate")


def _adopted(entry: ReportedTarget) -> tuple[State, str]:
    assert entry.adopted is not None
    if entry.stale:
        return "bad", "adopted kernel is stale"
    if entry.adopted.verdict is None or not entry.adopted.verdict.correct:
        return "bad", "adopted kernel fails"
    if entry.history is not None and entry.history.slower:
        return "bad", "slower than recorded"
    return "good", "adopted"


def _candidate(anchor: str, each: ReportedCandidate, suggested: ReportedCandidate | None) -> CandidateView:
    verdict, line = each.verdict, wrong_line(each.verdict)
    if line is not None and line > each.source.count("\n") + 1:
        line = None
    state, word = _decided(verdict)
    other = suggested.source if suggested and each is not suggested else ""
    return CandidateView(
        anchor,
        each,
        state,
        word,
        each is suggested,
        highlighted(each.source, marked=line, anchor=f"{anchor}-wrong") if each.source else Markup(),
        line,
        difference(other, each.source) if other and each.source else Markup(),
    )


def _decided(verdict: Verdict | None) -> tuple[State, str]:
    if verdict is None:
        return "none", "no verdict"
    if verdict.verdict == "inconclusive":
        return "open", "inconclusive"
    return "good" if verdict.accepted else "bad", "too slow" if verdict.rule == "speed" else verdict.verdict

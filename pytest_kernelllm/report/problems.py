"""What a report holds against kernels, each at its marker's line: for code scanning, and for annotations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kernelllm_judge.core.records import ADOPTED, Target
from kernelllm_judge.standing import newly_refused
from pytest_kernelllm.discover.adoption import verified_under
from pytest_kernelllm.report.read import Report, ReportedCandidate, ReportedTarget

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""From the worst on."""

STALE, SLOWER, UNDECIDED = "stale", "slower than recorded", "undecided"
BESIDE_RULES = {
    STALE: "the class is the one that its adopted kernel was made for",
    SLOWER: "an adopted kernel is about as fast as it was recorded to be",
    UNDECIDED: "an adopted kernel can be judged",
}
"""What is asked of adopted kernels beside the judge's rules, by the names that problems give as their rule."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one kernel."""

    level: Level
    rule: str
    """One of the judge's rules, or of ``BESIDE_RULES``."""
    target: Target
    candidate: str
    """``ReportedCandidate.id``"""
    text: str

    @property
    def fingerprint(self) -> str:
        """Names the same problem in later runs, wherever the class stands by then."""
        parts = (self.target.name, self.target.source_hash, self.candidate, self.rule)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def problems(report: Report) -> tuple[Problem, ...]:
    """Returns all problems, the worst first: of adopted kernels, and of candidates where none was accepted."""
    found = [problem for entry in report.targets for problem in _of(entry)]
    return tuple(sorted(found, key=lambda problem: LEVELS.index(problem.level)))


def _of(entry: ReportedTarget) -> Iterator[Problem]:
    target, adopted = entry.target, entry.adopted
    if adopted is not None:
        yield from _adopted(entry, adopted)
    if entry.stale:
        why = f"has changed since {target.kernel} was adopted, so the original runs; take the new suggestion, or remove kernel="
        yield Problem("warning", STALE, target, str(ADOPTED), f"{target.name} {why}.")
    if any(each.verdict and each.verdict.accepted for each in entry.candidates):
        return
    for each in entry.candidates:
        if each is not adopted and each.verdict and each.verdict.verdict == "rejected":
            text = f"{target.name}: {each.id} is rejected: {each.verdict.reason}"
            yield Problem("note", each.verdict.rule, target, each.id, text)


def _adopted(entry: ReportedTarget, adopted: ReportedCandidate) -> Iterator[Problem]:
    verdict = adopted.verdict
    level: Level = "error"
    if verdict is None or verdict.verdict == "inconclusive":
        rule = UNDECIDED
    elif verdict.verdict == "rejected":
        rule = verdict.rule
        level = "warning" if newly_refused(verdict, verified_under(adopted.source)) else "error"
    elif entry.failure:
        rule = SLOWER
    else:
        return
    how, why = entry.failure or ("is rejected", verdict.reason if verdict else adopted.reason)
    yield Problem(
        level, rule, entry.target, adopted.id, f"{entry.target.name}: the adopted kernel {how}: {why}"
    )

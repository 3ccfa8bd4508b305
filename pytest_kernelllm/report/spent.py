"""What language models wrote for a run, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelllm_judge.core.records import ADOPTED
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.report.read import ReportedCandidate


@dataclass(frozen=True)
class Spent:
    """What one generator wrote and cost."""

    generator: str
    answers: int
    tokens: int
    cost: float | None
    """US dollars; of those answers whose cost is known."""

    def __str__(self) -> str:
        """As a clause: ``88 answers, 21,760 tokens, $0.42 when they were written``."""
        answers = f"{counted(self.answers, 'answer')}, {counted(self.tokens, 'token')}"
        if self.cost is None:
            return answers
        cost = f"${self.cost:,.2f}" if self.cost >= 0.01 else "less than $0.01"
        return f"{answers}, {cost} when they were written"


def spent(candidates: Iterable[Outcome | ReportedCandidate]) -> list[Spent]:
    """Returns the generators that wrote tokens, in the order in which they appear."""
    by: dict[str, list[Outcome | ReportedCandidate]] = {}
    for each in candidates:
        if each.tokens:
            by.setdefault(each.generator, []).append(each)
    return [
        Spent(
            name,
            sum(each.answers for each in own),
            sum(each.tokens for each in own),
            _total([each.cost for each in own]),
        )
        for name, own in by.items()
    ]


def silent(candidates: Iterable[Outcome | ReportedCandidate]) -> list[str]:
    """Returns a sentence for each generator that wrote no candidate at all, with its first reason."""
    by: dict[str, list[Outcome | ReportedCandidate]] = {}
    for each in candidates:
        by.setdefault(each.generator, []).append(each)
    return [
        f"{name} wrote no candidate: {own[0].reason.rstrip('.')}."
        for name, own in by.items()
        if name != ADOPTED.generator and not any(each.verdict for each in own)
    ]


def _total(costs: list[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None

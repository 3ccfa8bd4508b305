"""What language models wrote for a run, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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


def _total(costs: list[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None

"""What language models wrote for a run, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class Written(Protocol):
    """A candidate, or why there is none: ``Outcome``, ``ReportedCandidate``."""

    @property
    def generator(self) -> str:
        """Who was asked."""

    @property
    def tokens(self) -> int:
        """That were written."""

    @property
    def cost(self) -> float | None:
        """US dollars, where somebody says."""


@dataclass(frozen=True)
class Spent:
    """By one generator."""

    generator: str
    answers: int
    tokens: int
    cost: float | None
    """US dollars; of those answers whose cost is known."""

    def __str__(self) -> str:
        """As a clause: ``88 answers, 21,760 tokens, $0.42 when they were written``."""
        answers = f"{self.answers:,} answer{'s' * (self.answers != 1)}"
        answers += f", {self.tokens:,} token{'s' * (self.tokens != 1)}"
        if self.cost is None:
            return answers
        cost = f"${self.cost:,.2f}" if self.cost >= 0.01 else "less than $0.01"
        return f"{answers}, {cost} when they were written"


def spent(candidates: Iterable[Written]) -> list[Spent]:
    """The generators that wrote tokens, in the order in which they appear."""
    by: dict[str, list[Written]] = {}
    for each in candidates:
        if each.tokens:
            by.setdefault(each.generator, []).append(each)
    return [
        Spent(name, len(own), sum(each.tokens for each in own), _total([each.cost for each in own]))
        for name, own in by.items()
    ]


def _total(costs: list[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None

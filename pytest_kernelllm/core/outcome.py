"""What became of a target's candidates: what items test, reports show and suggestions are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_kernelllm.core.records import Candidate, Record, Target, Verdict

ADOPTED = -1
"""Index of the adopted kernel among a target's candidates."""


@dataclass(frozen=True)
class Outcome(Record):
    """What became of one candidate of one target."""

    target: Target
    index: int
    candidate: Candidate | None = None
    verdict: Verdict | None = None
    reason: str = ""
    """Why there is no candidate or no verdict."""
    cached: bool = False
    """Whether the verdict was in the store already."""
    generator: str = ""
    """Who was asked for the candidate."""
    tokens: int = 0
    """That a language model wrote for it; 0 where there is none, or nobody counted."""
    cost: float | None = None
    """US dollars that they cost when they were written; None where nobody says."""


def best(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The accepted candidate worth having: the fastest, or the first where nothing was timed."""
    accepted = [o for o in outcomes if o.verdict is not None and o.verdict.accepted and o.index != ADOPTED]

    def rank(outcome: Outcome) -> tuple[float, int]:
        assert outcome.verdict is not None
        speedup = outcome.verdict.speedup
        return (-(speedup.value if speedup else 0.0), outcome.index)

    return min(accepted, key=rank, default=None)

"""What became of a target's candidates: what items test, reports show and suggestions are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_kernelllm.core.records import ADOPTED, Candidate, CandidateId, Record, Target, Verdict


@dataclass(frozen=True)
class Outcome(Record):
    """What became of one candidate of one target."""

    target: Target
    id: CandidateId
    candidate: Candidate | None = None
    verdict: Verdict | None = None
    reason: str = ""
    """Why there is no candidate or no verdict; one sentence."""
    cached: bool = False
    """Whether the verdict was in the store already."""
    tokens: int = 0
    """Tokens that a language model wrote for it; 0 where there is none, or the count is unknown."""
    cost: float | None = None
    """US dollars that they cost when they were written; None where the price is unknown."""

    @property
    def generator(self) -> str:
        """Name of the generator that was asked; ``adopted`` for the adopted kernel."""
        return self.id.generator

    @property
    def rejected(self) -> bool:
        """Whether a verdict says that it is wrong, or too slow."""
        return self.verdict is not None and self.verdict.verdict == "rejected"

    @property
    def why(self) -> str:
        """Why it was not accepted, in one sentence."""
        return self.verdict.reason if self.verdict else self.reason


def best(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Returns the accepted candidate to suggest: the fastest one, or the first where nothing was timed."""
    accepted = [o for o in outcomes if o.verdict is not None and o.verdict.accepted and o.id != ADOPTED]

    def speedup(outcome: Outcome) -> float:
        assert outcome.verdict is not None
        return outcome.verdict.speedup.value if outcome.verdict.speedup else 0.0

    return max(accepted, key=speedup, default=None)

"""What became of a target's candidates: what items test, reports show and suggestions are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelllm_judge.core.records import ADOPTED, Candidate, CandidateId, Record, Target, Verdict
from pytest_kernelllm.core.history import History


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
    rounds: tuple[Outcome, ...] = ()
    """What became of each answer where the first one was repaired, in order. ``tokens`` and ``cost`` are those of all."""
    unanswered: int = 0
    """Requests that a server failed for a passing reason; the next run repeats them."""
    history: History | None = None
    """What earlier runs recorded, for an adopted kernel with a verdict."""

    @property
    def answers(self) -> int:
        """How many answers were asked for."""
        return max(1, len(self.rounds))

    @property
    def repaired(self) -> int:
        """The round of the answer that counts: 0 for the first one."""
        names = [(o.candidate, o.verdict, o.reason) for o in self.rounds]
        return names.index((self.candidate, self.verdict, self.reason)) if names else 0

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


def best_of_rounds(rounds: Sequence[Outcome]) -> Outcome:
    """Returns one outcome for a sample that was repaired: the best answer's, with what all of them cost.

    An accepted answer is better than a correct one, and a correct one than others; of equals the fastest counts, else the last.
    """

    def rank(numbered: tuple[int, Outcome]) -> tuple[bool, bool, float, int]:
        number, outcome = numbered
        verdict = outcome.verdict
        right = verdict is not None and verdict.correct
        speed = verdict.speedup.value if verdict is not None and right and verdict.speedup else 0.0
        return verdict is not None and verdict.accepted, right, speed, number

    _, chosen = max(enumerate(rounds), key=rank)
    costs = [each.cost for each in rounds if each.cost is not None]
    return replace(
        chosen,
        tokens=sum(each.tokens for each in rounds),
        cost=sum(costs) if costs else None,
        rounds=tuple(rounds),
    )


def best(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Returns the accepted candidate to suggest: the fastest one, or the first where nothing was timed."""
    accepted = [o for o in outcomes if o.verdict is not None and o.verdict.accepted and o.id != ADOPTED]
    return max(accepted, key=_speedup, default=None)


def shown(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Returns the kernel that one target runs already, or may: the adopted one if it is right, else the best."""
    adopted = next((o for o in outcomes if o.id == ADOPTED), None)
    if adopted is not None:
        return adopted if adopted.verdict is not None and adopted.verdict.correct else None
    return best(outcomes)


def nearest(outcomes: Sequence[Outcome]) -> Outcome:
    """Returns which of several candidates without an accepted one comes nearest: the fastest right one, or the first judged."""
    judged = [o for o in outcomes if o.verdict is not None] or outcomes
    return max(judged, key=lambda o: (o.verdict is not None and o.verdict.correct, _speedup(o)))


def _speedup(outcome: Outcome) -> float:
    timed = outcome.verdict is not None and outcome.verdict.correct and outcome.verdict.speedup
    return timed.value if timed else 0.0

"""The figures by rounds of repair, and what drawing as many first answers would have achieved instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

from kernelllm_judge.core.records import Record
from pytest_kernelllm.beside.passk.estimator import mean, pass_at_k
from pytest_kernelllm.beside.passk.figures import SPEEDS, FastAt, PassAt, Result


@dataclass(frozen=True)
class Round(Record):
    """What became of one answer of a sample that may be repaired."""

    result: Result
    reason: str = ""
    rule: str = ""
    speedup: float | None = None
    slow: bool = False
    kernel_hash: str | None = None
    tokens: int = 0
    """Tokens that the model wrote; 0 if unknown."""
    cost: float | None = None
    """US dollars; None if unknown."""

    @property
    def correct(self) -> bool:
        """Right, whatever its speed."""
        return self.result == "correct"


@dataclass(frozen=True)
class Instead(Record):
    """What first answers alone achieve for as many answers as k samples take with their repairs."""

    k: int
    answers: float
    """Answers that k samples take; mean over targets."""
    value: float | None
    """pass@``answers`` of first answers, rounded up to a whole number; None where fewer were drawn."""


@dataclass(frozen=True)
class RoundScore(Record):
    """The figures after some rounds of repair: a sample counts as right if one of its answers so far is."""

    rounds: int
    """0: first answers only."""
    answers: int
    """Answers that were asked for so far."""
    tokens: int
    cost: float | None
    """US dollars, of the answers whose cost is known."""
    correct: int
    pass_at: tuple[PassAt, ...]
    fast: tuple[FastAt, ...]
    instead: tuple[Instead, ...]


def round_score(
    samples: Sequence[Sequence[Round]], number: int, at: Sequence[int], *, timed: bool
) -> RoundScore:
    """Returns one target's figures after some rounds of repair.

    Args:
        samples: the answers of each sample, the first one first.
        number: rounds of repair; 0 counts first answers only.
        at: each k to give figures for.
        timed: whether correct answers were timed.
    """
    so_far = [rounds[: number + 1] for rounds in samples]
    answers = sum(map(len, so_far))

    def estimate(k: int, succeeds: Callable[[Round], bool]) -> float | None:
        return pass_at_k(len(so_far), sum(any(map(succeeds, rounds)) for rounds in so_far), k)

    def instead(k: int) -> Instead:
        taken = k * answers / len(samples) if samples else 0.0
        first_right = sum(rounds[0].correct for rounds in samples)
        return Instead(k, taken, pass_at_k(len(samples), first_right, ceil(taken)) if samples else None)

    costs = [each.cost for rounds in so_far for each in rounds if each.cost is not None]
    return RoundScore(
        rounds=number,
        answers=answers,
        tokens=sum(each.tokens for rounds in so_far for each in rounds),
        cost=sum(costs) if costs else None,
        correct=sum(any(each.correct for each in rounds) for rounds in so_far),
        pass_at=tuple(
            # What was translated is not followed through the rounds.
            PassAt(k, estimate(k, lambda each: each.correct), None)
            for k in at
        ),
        fast=tuple(
            FastAt(p, k, estimate(k, partial(_faster, p)) if timed else None) for p in SPEEDS for k in at
        ),
        instead=tuple(map(instead, at)),
    )


def rounds_together(targets: Sequence[Sequence[RoundScore]]) -> tuple[RoundScore, ...]:
    """Returns the figures of several targets together: sums of counts, means over targets."""
    return tuple(map(_together, zip(*targets, strict=True)))


def _together(scores: tuple[RoundScore, ...]) -> RoundScore:
    costs = [s.cost for s in scores if s.cost is not None]
    first = scores[0]
    return RoundScore(
        rounds=first.rounds,
        answers=sum(s.answers for s in scores),
        tokens=sum(s.tokens for s in scores),
        cost=sum(costs) if costs else None,
        correct=sum(s.correct for s in scores),
        pass_at=tuple(
            PassAt(one.k, mean([s.pass_at[i].value for s in scores]), None)
            for i, one in enumerate(first.pass_at)
        ),
        fast=tuple(
            FastAt(one.p, one.k, mean([s.fast[i].value for s in scores])) for i, one in enumerate(first.fast)
        ),
        instead=tuple(
            Instead(
                one.k,
                sum(s.instead[i].answers for s in scores) / len(scores),
                mean([s.instead[i].value for s in scores]),
            )
            for i, one in enumerate(first.instead)
        ),
    )


def _faster(p: float, answer: Round) -> bool:
    return answer.correct and answer.speedup is not None and answer.speedup > p

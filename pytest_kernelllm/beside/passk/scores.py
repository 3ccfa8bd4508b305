"""Turns what became of each completion into the figures of a target, and of all targets together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from pytest_kernelllm.beside.passk.estimator import mean, pass_at_k
from pytest_kernelllm.beside.passk.figures import RESULTS, SPEEDS, FastAt, PassAt, Result
from pytest_kernelllm.beside.passk.records import Answer, RoundScore, Sample, Score
from pytest_kernelllm.core.outcome import Outcome

A = TypeVar("A", bound=Answer)


def sample_of(outcome: Outcome, *, code: bool = True) -> Sample:
    """Says what became of a completion, from the outcome of its candidate.

    Args:
        code: whether the completion's text held code.
    """
    return _answer(Sample, outcome, code)


def answers_of(outcome: Outcome) -> tuple[Answer, ...]:
    """Says what became of each answer of a sample, the first one first."""
    return tuple(_answer(Answer, each) for each in outcome.rounds or (outcome,))


def _answer(kind: type[A], outcome: Outcome, code: bool = True) -> A:
    candidate, verdict, index = outcome.candidate, outcome.verdict, outcome.id.sample
    if verdict is None:
        return kind(index, "generate", outcome.reason, tokens=outcome.tokens, cost=outcome.cost)
    slow = verdict.rule == "speed"
    result: Result = verdict.stage
    if verdict.verdict == "inconclusive":
        result = "inconclusive"
    elif verdict.accepted or slow:
        result = "correct"
    elif candidate is None and not code:
        result = "extract"
    only = verdict.timing[0] if len({timing.case for timing in verdict.timing}) == 1 else None
    return kind(
        index,
        result,
        verdict.reason,
        verdict.rule,
        candidate is not None and candidate.translated,
        verdict.speedup.value if verdict.speedup else None,
        slow,
        candidate.kernel_hash if candidate else None,
        outcome.cached,
        only.kernel if only else None,
        only.eager if only else None,
        only.compiled if only else None,
        only.roofline_share if only else None,
        verdict.seconds,
        outcome.tokens,
        outcome.cost,
    )


def score(
    samples: Sequence[Sample], at: Sequence[int], *, timed: bool, unanswered: int = 0, repair: int = 0
) -> Score:
    """Returns the figures of one target.

    Args:
        unanswered: requests for more that failed for a passing reason.
        repair: rounds of repair that were asked for; 0: samples have no rounds.
    """
    results = Counter(s.result for s in samples)
    # A correct kernel that was not timed might be fast: then no share of fast ones is known.
    timed = timed and all(s.speedup is not None for s in samples if s.correct)
    pass_at, fast = _estimated([[s] for s in samples], at, timed)
    return Score(
        completions=len(samples),
        candidates=sum(s.kernel_hash is not None for s in samples),
        correct=results["correct"],
        slow=sum(s.slow for s in samples),
        translated=sum(s.translated for s in samples),
        inconclusive=results["inconclusive"],
        unanswered=unanswered,
        failures=_in_order(results),
        pass_at=pass_at,
        fast=fast,
        rounds=tuple(_round(samples, number, at, timed) for number in range(repair + 1 if repair else 0)),
    )


def _round(samples: Sequence[Sample], number: int, at: Sequence[int], timed: bool) -> RoundScore:
    so_far = [s.rounds[: number + 1] for s in samples]
    answers = [answer for each in so_far for answer in each]
    pass_at, fast = _estimated(so_far, at, timed)
    return RoundScore(
        rounds=number,
        answers=len(answers),
        tokens=sum(answer.tokens for answer in answers),
        cost=_cost(answers),
        correct=sum(any(answer.correct for answer in each) for each in so_far),
        pass_at=pass_at,
        fast=fast,
    )


def _estimated(
    samples: Sequence[Sequence[Answer]], at: Sequence[int], timed: bool
) -> tuple[tuple[PassAt, ...], tuple[FastAt, ...]]:
    """pass@k and fast_p over samples, each of which succeeds if one of its answers does."""

    def estimate(k: int, succeeds: Callable[[Answer], bool]) -> float | None:
        return pass_at_k(len(samples), sum(any(map(succeeds, answers)) for answers in samples), k)

    passes = tuple(
        PassAt(k, estimate(k, lambda s: s.correct), estimate(k, lambda s: s.correct and not s.translated))
        for k in at
    )
    fast = (FastAt(p, k, estimate(k, partial(_faster, p)) if timed else None) for p in SPEEDS for k in at)
    return passes, tuple(fast)


def together(scores: Sequence[Score], at: Sequence[int]) -> Score:
    """Returns the figures of several targets together: sums of counts, means over targets."""
    failures = Counter[Result]()
    for one in scores:
        failures.update(one.failures)
    pass_at, fast = _means(scores, at)
    return Score(
        completions=sum(s.completions for s in scores),
        candidates=sum(s.candidates for s in scores),
        correct=sum(s.correct for s in scores),
        slow=sum(s.slow for s in scores),
        translated=sum(s.translated for s in scores),
        inconclusive=sum(s.inconclusive for s in scores),
        unanswered=sum(s.unanswered for s in scores),
        failures=_in_order(failures),
        pass_at=pass_at,
        fast=fast,
        rounds=tuple(_rounds_together(each, at) for each in zip(*(s.rounds for s in scores), strict=True)),
    )


def _rounds_together(scores: Sequence[RoundScore], at: Sequence[int]) -> RoundScore:
    return RoundScore(
        scores[0].rounds,
        sum(s.answers for s in scores),
        sum(s.tokens for s in scores),
        _cost(scores),
        sum(s.correct for s in scores),
        *_means(scores, at),
    )


def _means(
    scores: Sequence[Score] | Sequence[RoundScore], at: Sequence[int]
) -> tuple[tuple[PassAt, ...], tuple[FastAt, ...]]:
    passes = tuple(
        PassAt(
            k, mean([s.pass_at[i].value for s in scores]), mean([s.pass_at[i].untranslated for s in scores])
        )
        for i, k in enumerate(at)
    )
    kinds = [(p, k) for p in SPEEDS for k in at]
    return passes, tuple(
        FastAt(*kind, mean([s.fast[i].value for s in scores])) for i, kind in enumerate(kinds)
    )


def _cost(answers: Iterable[Answer] | Iterable[RoundScore]) -> float | None:
    known = [answer.cost for answer in answers if answer.cost is not None]
    return sum(known) if known else None


def _faster(p: float, sample: Answer) -> bool:
    return sample.correct and sample.speedup is not None and sample.speedup > p


def _in_order(results: Counter[Result]) -> dict[Result, int]:
    """Counts of failures, in the order of the stages, those without any left out."""
    failed = [name for name in RESULTS if name not in ("correct", "inconclusive")]
    return {name: results[name] for name in failed if results[name]}

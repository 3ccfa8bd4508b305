"""Turns what became of each completion into the figures of a target, and of all targets together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from pytest_kernelllm.beside.passk.estimator import mean, pass_at_k
from pytest_kernelllm.beside.passk.figures import RESULTS, SPEEDS, FastAt, PassAt, Result
from pytest_kernelllm.beside.passk.records import Sample, Score
from pytest_kernelllm.beside.passk.rounds import Round, round_score, rounds_together
from pytest_kernelllm.core.outcome import Outcome


def sample_of(outcome: Outcome, *, code: bool = True) -> Sample:
    """Says what became of a completion, from the outcome of its candidate.

    Args:
        outcome: with a verdict, or with the reason why there is none.
        code: whether the completion's text held code.
    """
    candidate, verdict, index = outcome.candidate, outcome.verdict, outcome.id.sample
    if verdict is None:
        return Sample(index, "generate", outcome.reason)
    slow = verdict.rule == "speed"
    result: Result = verdict.stage
    if verdict.verdict == "inconclusive":
        result = "inconclusive"
    elif verdict.accepted or slow:
        result = "correct"
    elif candidate is None and not code:
        result = "extract"
    only = verdict.timing[0] if len({timing.case for timing in verdict.timing}) == 1 else None
    return Sample(
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
        dict(verdict.durations),
    )


def rounds_of(outcome: Outcome) -> tuple[Round, ...]:
    """Says what became of each answer of a sample, the first one first."""
    return tuple(map(_round, outcome.rounds or (outcome,)))


def _round(outcome: Outcome) -> Round:
    sample = sample_of(outcome)
    return Round(
        sample.result,
        sample.reason,
        sample.rule,
        sample.speedup,
        sample.slow,
        sample.kernel_hash,
        outcome.tokens,
        outcome.cost,
    )


def score(
    samples: Sequence[Sample], at: Sequence[int], *, timed: bool, unanswered: int = 0, repair: int = 0
) -> Score:
    """Returns the figures of one target.

    Args:
        samples: one a completion.
        at: each k to give pass@k and fast_p for.
        timed: whether correct candidates were timed.
        unanswered: requests for more that failed for a passing reason.
        repair: rounds of repair that were asked for; 0: samples have no rounds.
    """
    results = Counter(s.result for s in samples)
    # A correct kernel that was not timed might be fast: then no share of fast ones is known.
    timed = timed and all(s.speedup is not None for s in samples if s.correct)

    def estimate(k: int, succeeds: Callable[[Sample], bool]) -> float | None:
        return pass_at_k(len(samples), sum(map(succeeds, samples)), k)

    return Score(
        completions=len(samples),
        candidates=sum(s.kernel_hash is not None for s in samples),
        correct=results["correct"],
        slow=sum(s.slow for s in samples),
        translated=sum(s.translated for s in samples),
        inconclusive=results["inconclusive"],
        unanswered=unanswered,
        failures=_in_order(results),
        pass_at=tuple(
            PassAt(k, estimate(k, lambda s: s.correct), estimate(k, lambda s: s.correct and not s.translated))
            for k in at
        ),
        fast=tuple(
            FastAt(p, k, estimate(k, partial(_faster, p)) if timed else None) for p in SPEEDS for k in at
        ),
        rounds=tuple(
            round_score([s.rounds for s in samples], number, at, timed=timed)
            for number in range(repair + 1 if repair else 0)
        ),
    )


def together(scores: Sequence[Score], at: Sequence[int]) -> Score:
    """Returns the figures of several targets together: sums of counts, means over targets.

    Args:
        scores: one a target, made with the same ``at``.
        at: each k that they were made for.
    """
    failures = Counter[Result]()
    for one in scores:
        failures.update(one.failures)
    fast = [(p, k) for p in SPEEDS for k in at]
    return Score(
        completions=sum(s.completions for s in scores),
        candidates=sum(s.candidates for s in scores),
        correct=sum(s.correct for s in scores),
        slow=sum(s.slow for s in scores),
        translated=sum(s.translated for s in scores),
        inconclusive=sum(s.inconclusive for s in scores),
        unanswered=sum(s.unanswered for s in scores),
        failures=_in_order(failures),
        pass_at=tuple(
            PassAt(
                k,
                mean([s.pass_at[i].value for s in scores]),
                mean([s.pass_at[i].untranslated for s in scores]),
            )
            for i, k in enumerate(at)
        ),
        fast=tuple(FastAt(p, k, mean([s.fast[i].value for s in scores])) for i, (p, k) in enumerate(fast)),
        rounds=rounds_together([s.rounds for s in scores]),
    )


def _faster(p: float, sample: Sample) -> bool:
    return sample.correct and sample.speedup is not None and sample.speedup > p


def _in_order(results: Counter[Result]) -> dict[Result, int]:
    """Counts of failures, in the order of the stages, those without any left out."""
    failed = [name for name in RESULTS if name not in ("correct", "inconclusive")]
    return {name: results[name] for name in failed if results[name]}

"""What became of KernelBench's problems, by level: decided or not, why not, and what it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_kernelllm.beside.passk.levels import first_sample
from pytest_kernelllm.beside.passk.records import LeftOut, LevelDecisions, TargetScore

KINDS = {
    "memory": ("memory",),
    "cannot tell right from wrong": ("cannot tell right from wrong",),
    "deadline": (" took more than ", "deadline", "no time to"),
    "process lost": ("process was lost", "was killed", "process ended", "did not start", "could not start"),
    "disk full": ("No space left on device", "Disk quota exceeded"),
}
"""Kinds of reasons, each with words that tell it; the first kind that fits counts."""


def level_decisions(scores: Sequence[TargetScore], left_out: Sequence[LeftOut]) -> tuple[LevelDecisions, ...]:
    """Returns what became of the problems of each level; nothing where the targets are not KernelBench's.

    Args:
        scores: of the targets that were counted.
        left_out: those that were not.
    """
    problems = [*(score.problem for score in scores), *(left.problem for left in left_out)]
    levels = {problem.level for problem in problems if problem}
    return tuple(
        _level(
            level,
            [score for score in scores if score.problem and score.problem.level == level],
            [left for left in left_out if left.problem and left.problem.level == level],
        )
        for level in sorted(levels)
    )


def kind_of(reason: str) -> str:
    """Returns the kind of a reason; its own first words where no kind fits."""
    for kind, words in KINDS.items():
        if any(word in reason for word in words):
            return kind
    return reason.partition(":")[0][:60]


def _level(level: int, scores: Sequence[TargetScore], left_out: Sequence[LeftOut]) -> LevelDecisions:
    samples = [sample for score in scores if (sample := first_sample(score))]
    right = [sample for sample in samples if sample.correct]
    undecided = [sample for sample in samples if sample.result == "inconclusive"]
    slow = sum(sample.slow for sample in right)
    durations: Counter[str] = Counter()
    for sample in samples:
        durations.update(sample.durations)
    failed = [left.reason for left in left_out if not left.nothing_to_offer]
    failed += ["no first sample"] * (len(scores) - len(samples))
    return LevelDecisions(
        level=level,
        problems=len(scores) + len(left_out),
        accepted=len(right) - slow,
        slow=slow,
        rejected=len(samples) - len(right) - len(undecided),
        nothing_to_offer=sum(left.nothing_to_offer for left in left_out),
        inconclusive=dict(Counter(kind_of(sample.reason) for sample in undecided)),
        failed=dict(Counter(map(kind_of, failed))),
        seconds=round(sum(sample.seconds for sample in samples), 3),
        durations={name: round(seconds, 3) for name, seconds in durations.most_common()},
    )

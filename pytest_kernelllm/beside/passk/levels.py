"""KernelBench's own figures: compiled, correct, and fast_p over all problems of a level."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from pytest_kernelllm.beside.passk.records import FastP, LeftOut, LevelScore, Sample, TargetScore

SPEEDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The p for which KernelBench's analysis gives fast_p."""

UNCOMPILED = frozenset(("generate", "extract", "render", "static check", "compile", "inconclusive"))
"""Results of samples that KernelBench would call not compiled: none of their code was found to run."""


def level_scores(
    scores: Sequence[TargetScore], left_out: Sequence[LeftOut], *, timed: bool
) -> tuple[LevelScore, ...]:
    """Returns the figures of each level; none where the targets are not KernelBench's problems.

    A problem that was left out counts as one that failed, as does one without a first sample.
    """
    problems = [(s.problem.level, first_sample(s)) for s in scores if s.problem]
    problems += [(left.problem.level, None) for left in left_out if left.problem]
    return tuple(
        _level(level, [first for at, first in problems if at == level], timed)
        for level in sorted({level for level, _ in problems})
    )


def first_sample(score: TargetScore) -> Sample | None:
    """Returns the sample that KernelBench's analysis counts: the one of index 0."""
    return next((sample for sample in score.samples if sample.index == 0), None)


def _level(level: int, firsts: Sequence[Sample | None], timed: bool) -> LevelScore:
    correct = [sample for sample in firsts if sample and sample.correct]
    speedups = [s.eager.p50 / s.kernel.p50 for s in correct if s.eager and s.kernel]
    over_compiled = [s.compiled.p50 / s.kernel.p50 for s in correct if s.compiled and s.kernel]
    # A correct kernel that was not timed might be fast: then no share of fast ones is known.
    known = timed and len(speedups) == len(correct)
    return LevelScore(
        level=level,
        problems=len(firsts),
        compiled=sum(sample is not None and sample.result not in UNCOMPILED for sample in firsts),
        correct=len(correct),
        speedup=geometric_mean(speedups) if known and speedups else None,
        fast=tuple(FastP(p, sum(s > p for s in speedups) / len(firsts) if known else None) for p in SPEEDS),
        speedup_compiled=geometric_mean(over_compiled) if known and over_compiled else None,
    )

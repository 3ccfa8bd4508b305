"""Ranks benchmarks over KernelBench: each run is a line in the table of each level that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_kernelllm.beside.passk.estimator import mean
from pytest_kernelllm.beside.passk.figures import SPEEDS
from pytest_kernelllm.beside.passk.problems import BenchError
from pytest_kernelllm.beside.passk.records import Benchmark, TargetScore
from pytest_kernelllm.beside.passk.theirs import Theirs, Verdicts, beside
from pytest_kernelllm.report.html.page import render

TEMPLATE = Path(__file__).with_name("leaderboard.html.jinja")
FASTER = tuple(p for p in SPEEDS if p >= 1)
"""The p of fast_p that are shown."""


@dataclass(frozen=True)
class Run:
    """A benchmark, and what KernelBench's own check said of its samples, by level."""

    benchmark: Benchmark
    theirs: Mapping[int, Verdicts]


@dataclass(frozen=True)
class Line:
    """One run at one level."""

    run: Benchmark
    problems: int
    """Of the level, those that were left out among them: they count as failed."""
    correct: int
    inconclusive: int
    """Samples that could not be decided; they count as failed."""
    pass_at: Mapping[int, float | None]
    fast: Mapping[float, float | None]
    """fast_p of one sample."""
    theirs: Theirs | None

    @property
    def name(self) -> str:
        """The model, or the generator where none is asked."""
        return self.run.model or self.run.generator

    @property
    def rank(self) -> tuple[float, float, str]:
        """What lines are sorted by: pass@1, then fast_1, then the name."""
        first = next(iter(self.pass_at.values()), None)
        return -(first or 0.0), -(self.fast.get(1.0) or 0.0), self.name


@dataclass(frozen=True)
class Level:
    """The table of one level of KernelBench."""

    number: int
    at: tuple[int, ...]
    """Each k of pass@k that some line has."""
    lines: tuple[Line, ...]
    """The best one first."""


@dataclass(frozen=True)
class Leaderboard:
    """All tables."""

    levels: tuple[Level, ...]
    faster: tuple[float, ...] = FASTER


def leaderboard(runs: Sequence[Run]) -> Leaderboard:
    """Returns the tables of some runs.

    Raises:
        BenchError: a run has no problem of KernelBench.
    """
    by_level: dict[int, list[Line]] = {}
    for run in runs:
        if not run.benchmark.levels:
            raise BenchError(
                f"The run of {run.benchmark.model or run.benchmark.generator} has no problem of KernelBench; "
                "`kernelllm bench --kernelbench` makes one that has."
            )
        for level in run.benchmark.levels:
            by_level.setdefault(level.level, []).append(_line(run, level.level))
    return Leaderboard(tuple(_level(number, lines) for number, lines in sorted(by_level.items())))


def render_leaderboard(runs: Sequence[Run]) -> str:
    """Returns the tables as one HTML page that makes no request.

    Raises:
        BenchError: a run has no problem of KernelBench.
    """
    return render(TEMPLATE, leaderboard(runs))


def _level(number: int, lines: Sequence[Line]) -> Level:
    at = sorted({k for line in lines for k in line.pass_at})
    return Level(number, tuple(at), tuple(sorted(lines, key=lambda line: line.rank)))


def _line(run: Run, level: int) -> Line:
    benchmark = run.benchmark
    targets = [each for each in benchmark.targets if each.problem and each.problem.level == level]
    missing = sum(left.problem is not None and left.problem.level == level for left in benchmark.left_out)
    at = [each.k for each in benchmark.total.pass_at]
    verdicts = run.theirs.get(level)
    return Line(
        run=benchmark,
        problems=len(targets) + missing,
        correct=sum(each.score.correct for each in targets),
        inconclusive=sum(each.score.inconclusive for each in targets),
        pass_at={k: _mean([_pass(each, k) for each in targets], missing) for k in at},
        fast={p: _mean([_fast(each, p) for each in targets], missing) for p in FASTER},
        theirs=None if verdicts is None else beside(targets, verdicts, missing, at),
    )


def _mean(values: list[float | None], missing: int) -> float | None:
    return mean([*values, *[0.0] * missing]) if values else None


def _pass(one: TargetScore, k: int) -> float | None:
    return next((each.value for each in one.score.pass_at if each.k == k), None)


def _fast(one: TargetScore, p: float) -> float | None:
    return next((each.value for each in one.score.fast if (each.p, each.k) == (p, 1)), None)

"""KernelBench's figures."""

import jsonschema
import pytest
from made import HERE, outcome, target

from pytest_kernelllm.beside.passk.levels import level_scores
from pytest_kernelllm.beside.passk.problems import Problem
from pytest_kernelllm.beside.passk.records import Benchmark, LeftOut, TargetScore
from pytest_kernelllm.beside.passk.schema import passk_schema
from pytest_kernelllm.beside.passk.scores import sample_of, score, together
from pytest_kernelllm.beside.passk.table import render_benchmark


def scored(level, number, *outcomes, timed=True):
    samples = tuple(sample_of(each) for each in outcomes)
    name = f"level{level}/{number}_P.py"
    return TargetScore(
        target(name), score(samples, [1], timed=timed), samples, Problem(level, number, f"{number}_P.py")
    )


def right(sample, speedup, over_compiled=None):
    return outcome(sample, "accepted", speedup=speedup, over_compiled=over_compiled)


@pytest.fixture
def benchmark():
    """Level 1: twice as fast, right but slow, wrong, and one that was left out. Level 2: the first sample does not run."""
    targets = (
        scored(1, 2, right(0, 2.0, over_compiled=1.5)),
        scored(1, 10, outcome(0, "timing", rule="speed", speedup=0.5), right(1, 3.0)),
        scored(1, 11, outcome(0, "correctness", rule="values")),
        scored(2, 1, outcome(0, "run", rule="run"), right(1, 4.0)),
    )
    left = (LeftOut("12_P.py::Model", "it cannot be built", Problem(1, 12, "12_P.py")),)
    total = together([t.score for t in targets], [1])
    levels = level_scores(targets, left, timed=True)
    return Benchmark("files", "", "", 2, HERE, True, targets, total, left, levels)


def test_the_figures_count_every_problem(benchmark):
    first, second = benchmark.levels
    fast = [(0.0, 0.5), (0.5, 0.25), (0.8, 0.25), (1.0, 0.25), (1.5, 0.25), (2.0, 0.0)]
    assert [(f.p, f.value) for f in first.fast] == fast
    assert (first.problems, first.compiled, first.correct) == (4, 3, 2)
    assert first.speedup == pytest.approx(1.0)  # of 2 and 0.5
    assert first.speedup_compiled == pytest.approx(1.5)  # the other one is not compiled
    assert second.speedup_compiled is None
    assert (second.problems, second.compiled, second.correct, second.speedup) == (1, 1, 0, None)


def test_without_times_there_is_no_fast_p():
    targets = [scored(1, 1, outcome(0, "accepted"), timed=False)]
    [level] = level_scores(targets, [], timed=False)
    assert (level.correct, level.speedup, {fast.value for fast in level.fast}) == (1, None, {None})


def test_the_report_follows_the_schema_and_the_table_shows_each_level(benchmark):
    jsonschema.validate(benchmark.to_json(), passk_schema())
    assert Benchmark.from_json(benchmark.to_json()) == benchmark
    shown = render_benchmark(benchmark, 160, color=False)
    rows = [line.split() for line in shown.splitlines() if line.strip().startswith("level ")]
    assert rows == [
        ["level", "1", "4", "3", "2", "1.00", "1.50", "0.50", "0.25", "0.25", "0.25", "0.25", "0.00"],
        ["level", "2", "1", "1", "0", "–", "–", *["0.00"] * 6],
    ]

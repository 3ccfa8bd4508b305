"""KernelBench's figures and files."""

import json

import jsonschema
import pytest
from made import HERE, outcome, target

from pytest_kernelllm.beside.passk.eval_results import baseline, eval_results, write_eval_results
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


def defined(entries, times, problems, p):
    """fast_p by its definition: of all problems, those whose first sample is right and more than p times as fast."""
    fast = 0
    for number, name in problems:
        first = [entry for entry in entries.get(str(number), []) if entry["sample_id"] == 0]
        if first and first[0]["correctness"]:
            fast += times[name]["mean"] / first[0]["runtime"] > p
    return fast / len(problems)


def test_fast_p_is_kernelbenchs_over_the_files_that_are_written(benchmark, tmp_path):
    write_eval_results(tmp_path, benchmark)
    times = json.loads((tmp_path / "baseline.json").read_text())
    problems = {1: [(n, f"{n}_P.py") for n in (2, 10, 11, 12)], 2: [(1, "1_P.py")]}
    for level in benchmark.levels:
        entries = json.loads((tmp_path / f"level{level.level}" / "eval_results.json").read_text())
        for fast in level.fast:
            expected = defined(entries, times[f"level{level.level}"], problems[level.level], fast.p)
            assert fast.value == pytest.approx(expected)
    assert [(f.p, f.value) for f in benchmark.levels[0].fast] == [
        (0.0, 0.5),
        (0.5, 0.25),
        (0.8, 0.25),
        (1.0, 0.25),
        (1.5, 0.25),
        (2.0, 0.0),
    ]


def test_the_other_figures_count_every_problem(benchmark):
    first, second = benchmark.levels
    assert (first.problems, first.compiled, first.correct) == (4, 3, 2)
    assert first.speedup == pytest.approx(1.0)  # of 2 and 0.5
    assert first.speedup_compiled == pytest.approx(1.5)  # the other one is not compiled
    assert second.speedup_compiled is None
    assert (second.problems, second.compiled, second.correct, second.speedup) == (1, 1, 0, None)


def test_entries_have_kernelbenchs_form(benchmark):
    entries = eval_results(benchmark)
    assert list(entries[1]) == ["2", "10", "11"]
    fast = entries[1]["2"][0]
    assert {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"} <= fast.keys()
    assert (fast["sample_id"], fast["compiled"], fast["correctness"]) == (0, True, True)
    assert fast["runtime"] == pytest.approx(fast["ref_runtime"] / 2)
    wrong = entries[1]["11"][0]
    assert (wrong["compiled"], wrong["correctness"], wrong["runtime"]) == (True, False, -1.0)
    assert wrong["metadata"]["correctness_issue"] == "why"
    assert entries[2]["1"][0]["metadata"]["runtime_error"] == "why"
    # Without an entry, KernelBench's analysis would leave a problem out of its count.
    assert baseline(benchmark)["level1"]["12_P.py"]["mean"] == -1.0


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

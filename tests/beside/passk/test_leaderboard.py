"""The page of benchmarks over KernelBench, and its command."""

import json
import re

import pytest
from made import HERE, outcome, target

from pytest_kernelllm.beside.passk.leaderboard import Run, leaderboard, render_leaderboard
from pytest_kernelllm.beside.passk.levels import level_scores
from pytest_kernelllm.beside.passk.problems import BenchError, Problem
from pytest_kernelllm.beside.passk.records import Benchmark, LeftOut, TargetScore
from pytest_kernelllm.beside.passk.scores import sample_of, score, together
from pytest_kernelllm.beside.passk.theirs import read_verdicts
from pytest_kernelllm.cli import main


def scored(level, number, *outcomes):
    samples = tuple(sample_of(each) for each in outcomes)
    problem = Problem(level, number, f"{number}_P.py")
    return TargetScore(target(str(problem)), score(samples, [1, 2], timed=True), samples, problem)


def benchmark(model, *targets, left=()):
    total = together([each.score for each in targets], [1, 2])
    levels = level_scores(targets, left, timed=True)
    return Benchmark("endpoint", model, "", 2, HERE, True, targets, total, left, levels)


RIGHT, SLOW = (outcome(i, "accepted", speedup=speed) for i, speed in ((0, 2.0), (1, 0.5)))
WRONG = [outcome(i, "correctness", rule="values") for i in range(2)]

GOOD = benchmark("good/model", scored(1, 1, RIGHT, SLOW), scored(1, 2, RIGHT, WRONG[1]), scored(2, 1, *WRONG))
POOR = benchmark(
    "poor/model <b>",
    scored(1, 1, WRONG[0], SLOW),
    left=(LeftOut("2_P.py::Model", "it cannot be built", Problem(1, 2, "2_P.py")),),
)
THEIRS = {
    "1": [{"sample_id": 0, "correctness": True}, {"sample_id": 1, "correctness": False}],
    "2": [{"sample_id": 0, "correctness": True}, {"sample_id": 1, "correctness": True}],
}


def text_of(page):
    body = re.sub(r"<style>.*?</style>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def test_runs_are_ranked_at_each_level_and_what_was_left_out_has_failed() -> None:
    found = leaderboard([Run(POOR, {}), Run(GOOD, {})])
    first, second = found.levels
    assert [line.name for line in first.lines] == ["good/model", "poor/model <b>"]
    assert [line.pass_at for line in first.lines] == [{1: 0.75, 2: 1.0}, {1: 0.25, 2: 0.5}]
    assert [line.fast[1.0] for line in first.lines] == [0.5, 0.0]
    assert [line.problems for line in first.lines] == [2, 2]
    assert [line.pass_at[1] for line in second.lines] == [0.0]


def test_kernelbenchs_own_check_stands_beside(tmp_path) -> None:
    (tmp_path / "eval.json").write_text(json.dumps(THEIRS))
    [line] = leaderboard([Run(GOOD, {1: read_verdicts(tmp_path / "eval.json")})]).levels[0].lines
    assert line.theirs is not None
    assert line.theirs.pass_at == {1: 0.75, 2: 1.0}
    assert line.theirs.refused_here == {"rule values": 1}
    assert (line.theirs.samples, line.theirs.wrongly, line.theirs.accepted_here) == (4, 1, 1)


def test_a_sample_without_an_entry_is_not_correct_there(tmp_path) -> None:
    (tmp_path / "eval.json").write_text(json.dumps({"1": THEIRS["1"]}))
    [line] = leaderboard([Run(GOOD, {1: read_verdicts(tmp_path / "eval.json")})]).levels[0].lines
    assert line.theirs is not None and line.theirs.pass_at == {1: 0.25, 2: 0.5}


def test_the_page_escapes_names_and_asks_nobody() -> None:
    page = render_leaderboard([Run(GOOD, {}), Run(POOR, {})])
    assert "poor/model &lt;b&gt;" in page and "<script" not in page
    assert "default-src 'none'" in page and not re.search(r"https?://", page)
    assert "0.750" in text_of(page) and "not known" in text_of(page)


def test_the_command_reads_what_bench_writes(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps(GOOD.to_json()))
    (tmp_path / "eval.json").write_text(json.dumps(THEIRS))
    command = [
        "leaderboard",
        "run.json",
        "--out",
        "site/index.html",
        "--theirs",
        "run.json",
        "1",
        "eval.json",
    ]
    assert main(command) == 0
    assert "1 of 4 accepted there and not here" in text_of((tmp_path / "site/index.html").read_text())
    assert main([*command[:-2], "3", "eval.json"]) == 2
    assert "run.json has no level 3" in capsys.readouterr().err
    assert main([*command[:-3], "other.json", "1", "eval.json"]) == 2
    assert "which is not among the runs" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[", "[]", "{}", '{"generator": 3}'])
def test_what_bench_did_not_write_is_one_sentence(tmp_path, capsys, text) -> None:
    (tmp_path / "run.json").write_text(text)
    assert main(["leaderboard", str(tmp_path / "run.json"), "--out", str(tmp_path / "page.html")]) == 2
    error = capsys.readouterr().err
    assert "was not written by `kernelllm bench --json`" in error and "Traceback" not in error
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "entries", [{"1": [{"sample_id": 0}]}, {"1": [{"sample_id": 0, "correctness": 1}]}, []]
)
def test_a_file_that_is_no_evaluation_is_one_sentence(tmp_path, entries) -> None:
    (tmp_path / "eval.json").write_text(json.dumps(entries))
    with pytest.raises(BenchError, match=r"is no eval_results.json of KernelBench"):
        read_verdicts(tmp_path / "eval.json")


def test_a_run_without_problems_of_kernelbench_has_no_place() -> None:
    one = TargetScore(target(), score((sample_of(RIGHT),), [1], timed=True), (sample_of(RIGHT),))
    run = Benchmark("files", "", "", 1, HERE, True, (one,), one.score, ())
    with pytest.raises(BenchError, match="has no problem of KernelBench"):
        leaderboard([Run(run, {})])

"""From outcomes to figures."""

import jsonschema
import pytest
from made import benchmark, outcome

from pytest_kernelllm.beside.passk.records import Benchmark, Sample
from pytest_kernelllm.beside.passk.schema import passk_schema
from pytest_kernelllm.beside.passk.scores import sample_of, score, together
from pytest_kernelllm.beside.passk.table import notes, render_benchmark


def correct(index, speedup=None, **changes):
    return Sample(index, "correct", speedup=speedup, kernel_hash="0" * 64, **changes)


def wrong(index, result="correctness", kernel_hash="0" * 64):
    return Sample(index, result, "it is wrong", kernel_hash=kernel_hash)


@pytest.mark.parametrize(
    ("what", "code", "result"),
    [
        (outcome(0, "accepted"), True, "correct"),
        (outcome(0, "timing", rule="speed", speedup=0.9), True, "correct"),
        (outcome(0, "timing", rule="clocks"), True, "timing"),
        (outcome(0, "timing", rule="device time"), True, "timing"),
        (outcome(0, "correctness", rule="values"), True, "correctness"),
        (outcome(0, "timing", verdict="inconclusive"), True, "inconclusive"),
        (outcome(0, "render"), False, "extract"),
        (outcome(0, "render"), True, "render"),
        (outcome(0, "generate"), True, "generate"),
    ],
)
def test_every_outcome_is_a_success_or_a_stated_failure(what, code, result):
    sample = sample_of(what, code=code)
    assert sample.result == result
    assert sample.correct == (result == "correct")
    assert bool(sample.kernel_hash) == (what.candidate is not None)
    assert sample.reason


def test_a_correct_kernel_that_is_slow_counts_and_is_told_apart():
    slow = sample_of(outcome(0, "timing", rule="speed", speedup=0.9))
    fast = sample_of(outcome(1, "accepted", speedup=1.3))
    figures = score([slow, fast], [1], timed=True)
    assert (figures.correct, figures.slow, figures.pass_at[0].value) == (2, 1, 1.0)


def test_failures_are_counted_by_stage_and_inconclusive_ones_apart():
    samples = [
        correct(0),
        wrong(1, "run"),
        wrong(2, "extract", None),
        wrong(3, "run"),
        wrong(4, "inconclusive"),
        wrong(5, "generate", None),
    ]
    figures = score(samples, [1], timed=False)
    assert figures.failures == {"generate": 1, "extract": 1, "run": 2}
    assert list(figures.failures) == ["generate", "extract", "run"]
    assert (figures.completions, figures.candidates, figures.inconclusive) == (6, 4, 1)
    assert figures.pass_at[0].value == pytest.approx(1 / 6)


def test_fast_p_worked_out_by_hand():
    """Four samples: 0.9x, 1.2x, 1.6x, and a wrong one that would be 3x."""
    quick_but_wrong = Sample(3, "correctness", speedup=3.0)
    figures = score([correct(0, 0.9), correct(1, 1.2), correct(2, 1.6), quick_but_wrong], [1, 2], timed=True)
    assert {(f.p, f.k): pytest.approx(f.value) for f in figures.fast} == {
        (0.8, 1): 3 / 4, (0.8, 2): 1.0,
        (1.0, 1): 2 / 4, (1.0, 2): 1 - 1 / 6,
        (1.2, 1): 1 / 4, (1.2, 2): 1 - 3 / 6,  # 1.2x is not more than 1.2
        (1.5, 1): 1 / 4, (1.5, 2): 1 - 3 / 6,
        (2.0, 1): 0.0, (2.0, 2): 0.0,
    }  # fmt: skip


def test_fast_p_is_not_known_where_a_correct_kernel_was_not_timed():
    assert {f.value for f in score([correct(0, 1.5), correct(1)], [1], timed=True).fast} == {None}
    assert {f.value for f in score([correct(0, 1.5)], [1], timed=False).fast} == {None}
    assert {f.value for f in score([wrong(0)], [1], timed=True).fast} == {0.0}


def test_translated_completions_count_once_with_and_never_without():
    samples = [correct(0, translated=True), correct(1), wrong(2), wrong(3)]
    figures = score(samples, [1, 2], timed=False)
    assert figures.translated == 1
    assert [(p.value, p.untranslated) for p in figures.pass_at] == [
        (0.5, 0.25),
        (pytest.approx(5 / 6), pytest.approx(1 / 2)),
    ]


def test_together_counts_add_up_and_figures_are_means_over_targets():
    many = score([correct(0, 2.5), wrong(1), wrong(2), wrong(3)], [1], timed=True)
    few = score([correct(0, 1.1)], [1], timed=True)
    total = together([many, few], [1])
    assert (total.completions, total.correct, total.failures) == (5, 2, {"correctness": 3})
    assert total.pass_at[0].value == pytest.approx((0.25 + 1.0) / 2)
    assert [f.value for f in total.fast] == pytest.approx([0.625, 0.625, 0.125, 0.125, 0.125])


def test_no_mean_over_targets_of_which_some_were_drawn_less():
    total = together(
        [score([correct(0)], [1, 2], timed=False), score([correct(0), wrong(1)], [1, 2], timed=False)], [1, 2]
    )
    assert [p.value for p in total.pass_at] == [0.75, None]


def test_the_json_follows_the_schema_and_comes_back():
    made = benchmark({"A": [correct(0, 1.3), wrong(1)], "B": [wrong(0), wrong(1, "inconclusive")]})
    jsonschema.validate(made.to_json(), passk_schema())
    assert Benchmark.from_json(made.to_json()) == made


def test_the_table_has_a_line_a_target_and_one_for_all():
    made = benchmark(
        {"A": [correct(0, 1.3, translated=True), wrong(1)], "B": [wrong(0), wrong(1, "inconclusive")]}
    )
    lines = [line.split() for line in render_benchmark(made, 140, False).splitlines()]
    assert lines[0][:6] == ["target", "n", "candidates", "correct", "pass@1", "pass@2"]
    assert lines[0][6:] == [f"fast_{p}@1" for p in ("0.8", "1", "1.2", "1.5", "2")]
    rows = {line[0]: line[1:] for line in lines if line}
    assert rows["A"] == ["layers.py", "2", "2", "1", "0.50", "1.00", "0.50", "0.50", "0.50", "0.00", "0.00"]
    assert rows["B"] == ["layers.py", "2", "2", "0", *["0.00"] * 7]
    assert rows["mean"][3:] == ["4", "4", "1", "0.25", "0.50", "0.25", "0.25", "0.25", "0.00", "0.00"]
    assert notes(made) == [
        "failures: 2 wrong",
        "inconclusive, counted as failures: 1 verdict",
        "1 of 4 completions were translated; without: pass@1 0.00  pass@2 0.00",
        "fast_p, best of 2: 0.8: 0.50  1: 0.50  1.2: 0.50  1.5: 0.00  2: 0.00",
    ]

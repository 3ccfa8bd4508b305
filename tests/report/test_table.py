"""The closing table names every target so that nobody confuses two."""

from dataclasses import replace

import pytest
from pages import GPU, timing, verdict

from kernelllm_judge.core.records import ADOPTED, LACKS, Check, Target
from pytest_kernelllm.core.outcome import CandidateId, Outcome
from pytest_kernelllm.report.table import render_table

TARGET = Target("a/model.py", "Norm", 1, "b" * 64, "call")


def outcome(path, name):
    return Outcome(Target(path, name, 1, "b" * 64, "call"), CandidateId("files", 0), None, None)


def test_targets_of_one_name_show_their_paths():
    outcomes = [outcome("a/model.py", "GLU"), outcome("b/model.py", "GLU"), outcome("b/model.py", "Norm")]
    lines = render_table(outcomes, {}, 110, False).splitlines()
    assert [line.partition("  ")[0].strip() for line in lines[2:]] == [
        "GLU a/model.py",
        "GLU b/model.py",
        "Norm",
    ]


def slow(index, speed):
    why = f"not fast enough: {speed}x eager on default, required at least 1.05x"
    found = verdict("rejected", why, "speed", GPU, (timing(speed=speed, compiled=speed),), "timing")
    return Outcome(TARGET, CandidateId("files", index), None, found)


def test_where_nothing_is_fast_enough_the_fastest_right_candidate_is_shown():
    wrong = Outcome(TARGET, CandidateId("files", 0), None, verdict("rejected", "output 0 is wrong", "values"))
    row = " ".join(render_table([wrong, slow(1, 0.4), slow(2, 0.9), slow(3, 0.7)], {}, 200, False).split())
    assert "Norm 3/4 0.90x" in row
    assert row.endswith("not fast enough: 0.9x eager on default, required at least 1.05x")


def test_of_wrong_candidates_the_first_says_why():
    reasons = ["output 0 is wrong", "it fails"]
    found = [verdict("rejected", each, "values", GPU, (timing(),)) for each in reasons]
    outcomes = [Outcome(TARGET, CandidateId("files", i), None, each) for i, each in enumerate(found)]
    row = " ".join(render_table(outcomes, {}, 200, False).split())
    assert row.endswith("Norm 0/2 – – – output 0 is wrong")


@pytest.mark.parametrize("identity", [CandidateId("files", 0), ADOPTED])
def test_the_row_says_why_a_candidate_does_not_count(identity):
    right = Outcome(TARGET, identity, None, verdict())
    open_one = verdict("inconclusive", "in TF32 that much is right, so the verdict needs a GPU")
    open_one = replace(open_one, checks=(Check(LACKS, True, None, None, "a GPU"),))
    outcomes = [right, Outcome(TARGET, CandidateId("files", 1), None, open_one)]
    row = " ".join(render_table(outcomes, {}, 200, False).split())
    assert "Norm 1/2" in row and row.endswith("1 undecided without a GPU")

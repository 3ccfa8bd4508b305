"""A survey of ordinary modules: each gets a candidate from the embedded generator, or a true sentence that says why not."""

from __future__ import annotations

import logging

import pytest
from survey import JUDGED, NOTES, SENTENCES, USUAL, made, targets

from kernelllm_judge.candidate import judge_as_shipped
from kernelllm_judge.core.kernel_module import read_supports
from kernelllm_judge.core.records import Candidate
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render
from kernelllm_judge.static_check.static_check import find_violations

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", targets())
def test_a_module_gets_a_candidate_or_a_true_sentence(
    name: str, judge: Judge, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    live, completion = made(name)
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert completion.note == SENTENCES.get(name, NOTES.get(name, USUAL))
    assert bool(completion.text) == (name not in SENTENCES)
    if completion.text:
        candidate = render(completion, live)
        _is_well_formed(candidate, len(live.cases))
        if name in JUDGED:
            _, verdict = judge_as_shipped(judge, candidate, Criteria(live, timing=False))
            assert verdict.accepted, verdict.reason


def _is_well_formed(candidate: Candidate, cases: int) -> None:
    compile(candidate.source, candidate.target, "exec")
    assert find_violations(candidate.source) == []
    assert len(read_supports(candidate.source)) == cases


def test_the_survey_is_large_and_its_table_names_what_is_there() -> None:
    assert len(targets()) >= 120
    assert {*SENTENCES, *JUDGED} <= targets().keys()
    assert not set(JUDGED) & SENTENCES.keys()

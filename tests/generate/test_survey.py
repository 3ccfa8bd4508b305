"""A survey of ordinary modules: each gets a candidate from the embedded generator, or a true sentence that says why not."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch
from survey import JUDGED, NOTES, SENTENCES, USUAL, made, targets

from pytest_kernelllm.core.kernel_module import read_supports
from pytest_kernelllm.core.records import Candidate
from pytest_kernelllm.generate.render.render import render
from pytest_kernelllm.judge.environment import find_environment
from pytest_kernelllm.judge.judge import Criteria, Judge
from pytest_kernelllm.judge.static_check.static_check import find_violations

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    torch.set_num_threads(1)
    with Judge(find_environment("cpu")) as judge:
        yield judge


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
        _is_well_formed(candidate)
        if name in JUDGED:
            verdict = judge.judge(candidate, Criteria(live, timing=False))
            assert verdict.accepted, verdict.reason


def _is_well_formed(candidate: Candidate) -> None:
    compile(candidate.source, candidate.target, "exec")
    assert find_violations(candidate.source) == []
    assert len(read_supports(candidate.source)) == 1


def test_the_survey_is_large_and_its_table_names_what_is_there() -> None:
    assert len(targets()) >= 120
    assert {*SENTENCES, *JUDGED} <= targets().keys()
    assert not set(JUDGED) & SENTENCES.keys()

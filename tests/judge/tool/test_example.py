"""The smallest inputs at which a rejected candidate is wrong, in words."""

import re

import pytest
from wrong_kernels import MARKED, SCALE, WRONG

from kernelllm_judge.candidate import Speed, criteria_of, judge_candidate
from kernelllm_judge.core.records import Verdict
from kernelllm_judge.pair_files import find_reference
from kernelllm_judge.target.live import load_target
from kernelllm_judge.tool.example import with_example


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    (folder / "layers.py").write_text(MARKED)
    return lambda cls: load_target(folder, find_reference(f"{folder / 'layers.py'}::{cls}"))


def shown(judge, load, cls, text) -> Verdict:
    live, speed = load(cls), Speed(timing=False)
    source, verdict = judge_candidate(judge, live, text, "", speed)
    probe = judge.rejected_at
    found = with_example(judge, criteria_of(live, speed), source, verdict)
    if found.example and probe is not None:
        seed = re.search(r"seed (\d+)", found.example)[1]
        assert int(seed) != probe.seed, "what is shown is never asked"
    return found


@pytest.mark.parametrize("rule", ["values", "memory", "types"])
def test_a_rejection_gets_the_smallest_inputs_that_are_found(judge, load, rule):
    cls, text, _ = WRONG[rule]
    verdict = shown(judge, load, cls, text)
    assert verdict.rule == rule
    reason, *inputs = verdict.example.splitlines()
    assert "seed" in reason
    assert inputs[0].startswith("x = ")
    assert re.search(r"float32 \[\d+, \d+\], row by row: -?\d", inputs[0])


def test_what_no_plain_call_shows_and_what_is_right_have_none(judge, load):
    for text in (SCALE, SCALE.replace("return out", "return x * self.weight + self.eps")):
        assert shown(judge, load, "Scale", text).example == ""

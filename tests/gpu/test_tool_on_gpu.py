"""Reproducers and warm judging where there is a GPU."""

import os
import subprocess
import sys

import pytest
from relu_kernels import ANSWER, REFERENCE
from wrong_kernels import MARKED, SCALE, WRONG

from kernelllm_judge.candidate import Speed
from kernelllm_judge.tool.warm import WarmJudge


@pytest.fixture(scope="module")
def warm():
    with WarmJudge("cuda") as opened:
        yield opened


@pytest.mark.parametrize("rule", WRONG)
def test_the_script_shows_on_the_gpu_what_is_wrong(rule, warm, tmp_path):
    cls, text, shown = WRONG[rule]
    (tmp_path / "layers.py").write_text(MARKED)
    judged = warm.judge(f"{tmp_path / 'layers.py'}::{cls}", text, Speed(timing=False), tmp_path / "wrong.py")
    assert (judged.verdict.rule, judged.note) == (rule, ""), judged.verdict.in_words()
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(judged.reproducer)], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


def test_a_warm_judge_times_one_after_the_other(warm, tmp_path):
    (tmp_path / "layers.py").write_text(MARKED)
    (tmp_path / "reference.py").write_text(REFERENCE)
    for _ in range(2):
        for reference, text in (("layers.py::Scale", SCALE), ("reference.py", ANSWER)):
            judged = warm.judge(f"{tmp_path}/{reference}", text, Speed(), tmp_path / "none.py")
            assert judged.verdict.accepted, judged.verdict.in_words()
            assert judged.verdict.speedup and judged.reproducer is None

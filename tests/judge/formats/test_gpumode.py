"""Folders in GPU MODE's form, judged as the judge's own pairs are."""

import json
import subprocess
import sys

import pytest

from kernelllm_judge.candidate import Speed
from kernelllm_judge.cli import main
from kernelllm_judge.tool.warm import Unjudged, WarmJudge

TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: utils.py, source: ../utils.py}
  - {name: reference.py, source: reference.py}
  - {name: eval.py, source: ../eval.py}
lang: py
config: {main: eval.py}
tests:
  - {rows: 3, width: 100, seed: 7}
  - {rows: 2, width: 33, seed: 11}
benchmarks:
  - {rows: 8192, width: 8192, seed: 3}
"""

UTILS = """
import os

import torch


class Deterministic:
    def __enter__(self):
        os.environ["SOME_SETTING"] = "1"

    def __exit__(self, *exc):
        pass


def make_match_reference(reference):
    return lambda data, output: (torch.allclose(reference(data), output), "")
"""

REFERENCE = """
import torch
from task import input_t, output_t
from utils import Deterministic, make_match_reference


def ref_kernel(data: input_t) -> output_t:
    with Deterministic():
        x, weights, y = data
        y[...] = x * weights["scale"] + weights["shift"]
        return y


def generate_input(rows: int, width: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    x = torch.randn(rows, width, device="cuda", generator=gen)
    scale = torch.randn(width, device="cuda", generator=gen)
    return x, {"scale": scale, "shift": 3}, torch.empty(rows, width, device="cuda")


check_implementation = make_match_reference(ref_kernel)
"""

SUBMISSION = """
#!POPCORN leaderboard scaling
import torch
import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def scale_kernel(x_ptr, scale_ptr, y_ptr, shift, width, BLOCK: tl.constexpr):
    row = tl.program_id(0) * width
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row + columns, mask)
    tl.store(y_ptr + row + columns, x * tl.load(scale_ptr + columns, mask) + shift, mask)


def _custom_kernel(data: input_t) -> output_t:
    x, weights, y = data
    rows, width = x.shape
    scale_kernel[(rows,)](x, weights["scale"], y, weights["shift"], width, BLOCK=triton.next_power_of_2(width))
    return y


custom_kernel = torch.compile(_custom_kernel, mode="reduce-overhead")
"""

WRONG = {
    "values": (SUBMISSION.replace("+ shift", "- shift"), "at test-1"),
    "memory": (SUBMISSION.replace("tl.store(", "tl.atomic_add("), "which nothing has written"),
    "sizes": (
        SUBMISSION.replace("width, BLOCK=triton.next_power_of_2(width)", "100, BLOCK=128"),
        "at test-2",
    ),
}


@pytest.fixture
def folder(tmp_path):
    problem = tmp_path / "scaling"
    problem.mkdir()
    (tmp_path / "utils.py").write_text(UTILS)
    (problem / "task.yml").write_text(TASK)
    (problem / "task.py").write_text("from typing import TypeVar\n\ninput_t = output_t = TypeVar('T')\n")
    (problem / "reference.py").write_text(REFERENCE)
    (problem / "submission.py").write_text(SUBMISSION)
    return problem


@pytest.fixture(scope="module")
def warm():
    with WarmJudge("cpu") as judge:
        yield judge


def judged(warm, folder, submission=None, **options):
    return warm.judge(str(folder), submission, Speed(timing=False), **options)


def test_an_honest_submission_is_accepted_at_the_sizes_of_the_tests(warm, folder):
    found = judged(warm, folder)
    assert found.verdict.accepted, found.verdict.reason
    assert "scale_kernel" in found.source


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_one_is_rejected_with_the_place(warm, folder, kind):
    submission, said = WRONG[kind]
    verdict = judged(warm, folder, submission).verdict
    assert verdict.verdict == "rejected"
    assert said in verdict.reason


def test_two_problems_with_modules_of_the_same_names_are_kept_apart(warm, folder):
    assert judged(warm, folder).verdict.accepted
    text = (folder / "reference.py").read_text()
    (folder / "reference.py").write_text(text.replace('+ weights["shift"]', '- weights["shift"]'))
    verdict = judged(warm, folder).verdict
    assert verdict.verdict == "rejected"
    assert judged(warm, folder, WRONG["values"][0]).verdict.accepted


def test_the_result_has_the_dtype_of_the_tensor_that_it_may_be_written_to(warm, folder):
    text = (folder / "reference.py").read_text()
    text = text.replace("y[...] = x *", "y = x.double() *")
    (folder / "reference.py").write_text(text)
    assert judged(warm, folder).verdict.accepted


def test_a_reproducer_shows_what_is_wrong(warm, folder, tmp_path):
    script = tmp_path / "shown" / "wrong.py"
    found = judged(warm, folder, WRONG["values"][0], reproducer=script)
    assert found.reproducer == script, found.note
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert "expected" in done.stdout, done.stderr


def test_the_command_takes_a_folder_and_its_submission(folder, tmp_path, capsys):
    assert main([str(folder), "--device", "cpu", "--no-timing", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "accepted"
    other = tmp_path / "other.py"
    other.write_text(WRONG["values"][0])
    assert main([str(folder), str(other), "--device", "cpu", "--no-timing"]) == 1
    assert "at test-1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("task.yml", None, "holds no task.yml"),
        ("task.yml", "tests: []", "lists no tests"),
        ("task.yml", "a: [", "is no YAML"),
        ("reference.py", "x = 1", "no attribute 'generate_input'"),
        ("submission.py", None, "there is no file"),
        ("reference.py", REFERENCE.replace('weights["scale"] +', 'weights["gone"] +'), "KeyError: 'gone'"),
    ],
)
def test_what_is_no_problem_is_said_in_a_sentence(warm, folder, file, text, said):
    (folder / file).unlink() if text is None else (folder / file).write_text(text)
    with pytest.raises(Unjudged, match=said):
        judged(warm, folder)


def test_a_file_needs_a_candidate(capsys, folder):
    assert main([str(folder / "reference.py"), "--device", "cpu"]) == 2
    assert "name a candidate" in capsys.readouterr().err

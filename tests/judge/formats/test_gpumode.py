"""Folders in GPU MODE's form, judged as the judge's own pairs are."""

import json
import subprocess
import sys

import pytest
from gpumode_problem import REFERENCE, SUBMISSION, lay_out

from kernelllm_judge.candidate import Speed
from kernelllm_judge.cli import main
from kernelllm_judge.tool.warm import Unjudged

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
    return lay_out(tmp_path)


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

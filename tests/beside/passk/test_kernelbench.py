"""``kernelllm bench --kernelbench``: a checkout, and bad input."""

import json
import os
import re
import subprocess

import pytest
from projects import ANSWER, COMMAND, PROBLEM

FILES = ("--generator", "files", "--candidates-dir", "candidates", "--device", "cpu", "-k", "1")


def bench(path, *arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    clean |= {"HF_HOME": str(path / "home"), "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "*"}
    command = [*COMMAND, "bench", *arguments, *FILES]
    return subprocess.run(
        command, cwd=path, env=clean | environment, capture_output=True, text=True, check=False
    )


def lay_out(path, files):
    for name, text in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


CANDIDATE = {"candidates/Model_0.md": f"Here it is:\n```python\n{ANSWER}```\n"}


@pytest.mark.slow
def test_a_checkout_is_measured_in_the_order_of_its_problems(tmp_path):
    lay_out(
        tmp_path,
        {
            "kb/KernelBench/level1/2_two.py": PROBLEM.replace("+ 1", "+ 2"),
            "kb/KernelBench/level1/10_ten.py": PROBLEM,
            "kb/KernelBench/level1/1_none.py": "x = 1\n",
            "kb/KernelBench/level2/1_one.py": PROBLEM.replace(
                "return [64]", "raise RuntimeError('no width')"
            ),
            "kb/KernelBench/level3/1_far.py": PROBLEM,
            "kb/elsewhere/1_other.py": PROBLEM,
            **CANDIDATE,
        },
    )
    arguments = ("--kernelbench", "2,1", "--kernelbench-path", "kb")
    done = bench(tmp_path, *arguments, "--json", "passk.json")
    assert done.returncode == 2, done.stderr  # two problems could not be counted
    [line] = done.stderr.splitlines()  # no progress in a log
    assert re.fullmatch(
        r"kernelllm: \d slots? (was|were) judging .* from the first verdict to the last\.", line
    )
    assert "not counted: level1/1_none.py: it does not have KernelBench's form" in done.stdout
    report = json.loads((tmp_path / "passk.json").read_text())
    assert [(t["problem"]["level"], t["problem"]["number"]) for t in report["targets"]] == [(1, 2), (1, 10)]
    left = {(p["problem"]["level"], p["problem"]["number"]): p["reason"] for p in report["left_out"]}
    assert left[1, 1] == "it does not have KernelBench's form"
    assert "no width" in left[2, 1]
    figures = [(level["level"], level["problems"], level["correct"]) for level in report["levels"]]
    assert figures == [(1, 3, 1), (2, 1, 0)]
    again = bench(tmp_path, *arguments, "--json", "again.json")
    assert again.stdout == done.stdout
    known = json.loads((tmp_path / "again.json").read_text())["targets"]
    assert all(sample["known"] for target in known for sample in target["samples"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "bench takes files and folders, or --kernelbench."),
        (("--kernelbench", "kb"), "a checkout is named by --kernelbench-path."),
        (("--kernelbench", "1,5"), "levels from 1 to 4"),
        (("kb", "--kernelbench"), "not from kb"),
        (("kb", "--kernelbench-path", "kb"), "--kernelbench-path goes with --kernelbench."),
        (("--kernelbench", "1", "--kernelbench-path", "kb"), "kb holds no level1"),
        (("--kernelbench",), "--kernelbench-path DIR"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, arguments, message):
    (tmp_path / "kb").mkdir()
    done = bench(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr

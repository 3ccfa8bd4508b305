"""Scripts that show, without the judge, where a rejected kernel is wrong."""

import json
import os
import subprocess
import sys

import pytest
from wrong_kernels import MARKED, SCALE, SEEN, WRONG

from kernelllm_judge.candidate import Speed

HIDDEN = {
    "static check": SCALE + "import os\n",
    "torch's share": SCALE.replace("return out", "return x * self.weight + self.eps"),
}
"""Kernels that break a rule at no probe, and one that gives right outputs."""

ALONE = """
import runpy
import sys

sys.modules["kernelllm_judge"] = None  # importing it fails
for file in sys.argv[1:]:
    print("script", file)
    runpy.run_path(file, run_name="__main__")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproducers")
    (folder / "layers.py").write_text(MARKED)
    return folder


@pytest.fixture(scope="module")
def judged(warm, folder):
    tried = WRONG | {rule: ("Scale", text, "") for rule, text in HIDDEN.items()}
    return {
        rule: warm.judge(
            f"{folder / 'layers.py'}::{cls}", text, Speed(timing=False), folder / f"wrong {rule}.py"
        )
        for rule, (cls, text, _) in tried.items()
    }


@pytest.fixture(scope="module")
def printed(judged):
    """What each script prints where the judge cannot be imported."""
    scripts = [str(each.reproducer) for each in judged.values() if each.reproducer]
    environ = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *scripts], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    parts = [part.partition("\n") for part in done.stdout.split("script ")[1:]]
    return {name: text for name, _, text in parts}


@pytest.mark.parametrize("rule", WRONG)
def test_the_script_shows_what_is_wrong_at_the_smallest_size(rule, judged, printed):
    assert (judged[rule].verdict.rule, judged[rule].note) == (rule, "")
    file = judged[rule].reproducer
    assert WRONG[rule][2] in printed[str(file)]
    assert " n=1, " in " ".join(file.read_text().split()), "the case's own size is 48"


@pytest.mark.parametrize("rule", HIDDEN)
def test_what_one_call_does_not_show_has_no_script(rule, judged, folder):
    assert judged[rule].verdict.rule == rule
    assert judged[rule].reproducer is None and not (folder / f"wrong {rule}.py").exists()
    assert judged[rule].note == (
        f"there is no reproducer: what breaks the rule `{rule}` does not show in one plain call"
    )


def test_the_command_names_the_script_in_its_line_of_json(folder):
    (folder / "candidate.py").write_text(WRONG["values"][1])
    command = [
        sys.executable,
        "-m",
        "kernelllm_judge.cli",
        "layers.py::Scale",
        "candidate.py",
        "--device",
        "cpu",
    ]
    done = subprocess.run(
        [*command, "--json", "--reproducer", "shown/wrong.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    line = json.loads(done.stdout)
    assert (line["rule"], line["reproducer"]) == ("values", "shown/wrong.py")
    assert "noise of the reference" in done.stderr
    shown = {file.name for file in (folder / "shown").iterdir()}
    assert shown == {"wrong.py", "wrong_kernel.py", "wrong.pt"}


def test_a_reference_that_changed_is_loaded_again(warm, tmp_path):
    (tmp_path / "helper.py").write_text("AMOUNT = 1\n")
    text = MARKED.replace("import torch\n", "import helper\nimport torch\n", 1).replace(
        "x + 1", "x + helper.AMOUNT"
    )
    (tmp_path / "changing.py").write_text(text)
    kernel = SEEN.replace("    return out", "    self.last.copy_(x[0] * 2)\n    return out")
    reference = f"{tmp_path / 'changing.py'}::Seen"
    assert warm.judge(reference, kernel, Speed(timing=False)).verdict.accepted
    (tmp_path / "helper.py").write_text("AMOUNT = 222\n")
    again = warm.judge(reference, kernel, Speed(timing=False), tmp_path / "changing.py")
    assert again.verdict.rule == "values", again.verdict.in_words()
    assert again.note == "there is no reproducer: it would be written over changing.py"
    assert (tmp_path / "changing.py").read_text() == text

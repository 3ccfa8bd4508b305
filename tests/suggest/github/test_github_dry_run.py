"""One bad kernel: nothing is suggested, for its reason; and the dry run."""

import json
import os
import subprocess
import sys

import pytest
from repository import git
from verified import patch_of, replace_patch

from kernelllm_judge.core.kernel_module import stamped
from pytest_kernelllm.suggest.github.errors import SuggestionRefused

BAD = {
    "an attribute that no kernel may touch": (
        lambda text: stamped(text.replace("    out =", "    self.load_state_dict({})\n    out =", 1)),
        "touches `load_state_dict`",
    ),
    "inline assembly": (
        lambda text: stamped(
            text.replace(
                "    tl.store",
                "    tl.inline_asm_elementwise('', '=r', [x], tl.int32, True, 1)\n    tl.store",
            )
        ),
        "inline_asm_elementwise",
    ),
    "an edit": (lambda text: text.replace("x + 1", "x + 2"), "header or digest"),
    "a hidden direction": (lambda text: stamped(text + "# \u202e\n"), "U+202E"),
    "letters from right to left": (lambda text: stamped(text + "# \u05d0\u05d1\n"), "U+05D0"),
    "no marker": (
        lambda text: stamped(text.replace("layers.py::Shift", "layers.py::Other")),
        "has no marker",
    ),
    "no marker, by a name that looks right": (
        lambda text: stamped(text.replace("layers.py::Shift", "layers.py::Sh\u0456ft")),
        "U+0456",
    ),
}


def with_a_bad_shift(world, change):
    """An artifact with two kernels; that of ``Shift`` is changed."""
    folder = world.artifact()
    git(world.clone, "apply", str(folder / "patches" / "all.patch"))
    file = world.clone / "pkg" / "_triton" / "shift.py"
    file.write_text(change(file.read_text()), encoding="utf-8")
    return replace_patch(folder, patch_of(world.clone))


@pytest.mark.parametrize("case", BAD)
def test_nothing_is_suggested_and_the_reason_is_said(world, case):
    change, reason = BAD[case]
    with pytest.raises(SuggestionRefused) as refused:
        world.suggest(with_a_bad_shift(world, change))
    assert reason in str(refused.value)
    assert world.hosting.written() == []


# --------------------------------------------------------------------------- the dry run


def kernelllm(folder, *arguments):
    command = [sys.executable, "-m", "pytest_kernelllm.cli", "suggest", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("below", [".", "pkg"])
def test_a_dry_run_shows_branch_text_and_files(world, below):
    folder = world.artifact(names=("Scale",))
    before = git(world.clone, "status", "--porcelain")
    done = kernelllm(world.clone / below, "--dry-run", "--from", str(folder))
    assert done.returncode == 0, done.stderr
    assert "branch  kernelllm/suggestions/main, from main at " in done.stdout
    assert "new   pkg/_triton/scale.py" in done.stdout and "edit  pkg/layers.py" in done.stdout
    assert (
        "NVIDIA H200" in done.stdout
        and '+@triton_candidate(init=(64,), kernel="pkg._triton.scale")' in done.stdout
    )
    assert git(world.clone, "status", "--porcelain") == before
    assert world.hosting.requests == []


def test_a_dry_run_reads_a_report_as_well(world):
    report = world.artifact().parent / "report.json"
    data = json.loads(report.read_text())
    for entry in data["targets"]:  # relative to where pytest ran
        entry["patch"] = os.path.relpath(entry["patch"], world.clone)
    report.write_text(json.dumps(data))
    done = kernelllm(world.clone, "--dry-run", "--from", str(report))
    assert done.returncode == 0, done.stderr
    assert "new   pkg/_triton/shift.py" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "takes a step"),
        (("--dry-run", "guard", "--mode", "verify"), "takes a step"),
        (("--dry-run",), "There is no kernelllm-artifact"),
        (("--dry-run", "--from", "setup.py"), "cannot be read"),
        (("--dry-run", "--from", "pkg"), "neither its report, its page, its SARIF file nor a patch"),
    ],
)
def test_a_dry_run_that_cannot_be_made_says_why(world, arguments, said):
    done = kernelllm(world.clone, *arguments)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr


def test_a_dry_run_of_a_patch_that_does_not_apply_says_so(world):
    folder = world.artifact()
    (world.clone / "pkg" / "layers.py").write_text("# gone\n")
    world.pushes("changed")
    done = kernelllm(world.clone, "--dry-run", "--from", str(folder))
    assert done.returncode == 2
    assert "does not apply" in done.stderr

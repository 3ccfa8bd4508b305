"""One bad kernel: it is left out with its reason, and the others are suggested; and the dry run that shows both."""

import json
import os
import subprocess
import sys

import pytest
from repository import git
from verified import patch_of, replace_patch
from world import BRANCH, propose

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
def test_the_others_are_suggested(world, case):
    change, reason = BAD[case]
    done = world.suggest(with_a_bad_shift(world, change))
    assert done.result == "opened"
    [left] = done.left_out
    assert reason in left.reason
    head = world.hosting.heads()[BRANCH]
    assert world.hosting.changed_in(head) == {
        "pkg/layers.py",
        "pkg/_triton/__init__.py",
        "pkg/_triton/scale.py",
    }
    source = world.hosting.show(head, "pkg/layers.py")
    assert b"pkg._triton.scale" in source and b"pkg._triton.shift" not in source
    [pull] = world.hosting.pulls
    assert "for 1 module," in pull["body"] and "**Left out**" in pull["body"] and reason in pull["body"]
    assert "`pkg/layers.py::Scale` |" in pull["body"] and "`pkg/layers.py::Shift` |" not in pull["body"]


def test_a_runnable_source_keeps_its_mode(world):
    (world.clone / "pkg" / "layers.py").chmod(0o755)
    world.pushes("runnable")
    assert world.suggest(with_a_bad_shift(world, BAD["an edit"][0])).result == "opened"
    assert git(world.hosting.bare, "ls-tree", BRANCH, "pkg/layers.py").startswith("100755")


def test_nothing_else_lands_beside_a_kernel_that_is_left_out(world):
    def change(text):
        (world.clone / "conftest.py").write_text("import os\n")
        return text.replace("x + 1", "x + 2")

    with pytest.raises(SuggestionRefused, match=r"changes conftest\.py"):
        world.suggest(with_a_bad_shift(world, change))
    assert world.hosting.written() == []


def test_what_a_kernel_that_is_left_out_changes_does_not_land(world):
    """Its files are not compared, so they must not be taken from the patch either."""

    def change(text):
        (world.clone / "pkg" / "_triton" / "__init__.py").write_text("import os\n")
        source = world.clone / "pkg" / "layers.py"
        source.write_text("import os\n" + source.read_text())
        return text.replace("x + 1", "x + 2")

    assert world.suggest(with_a_bad_shift(world, change)).result == "opened"
    head = world.hosting.heads()[BRANCH]
    assert b"import os" not in world.hosting.show(head, "pkg/layers.py")
    assert b"import os" not in world.hosting.show(head, "pkg/_triton/__init__.py")


def test_nothing_is_suggested_when_no_kernel_is_left(world):
    folder = world.artifact(names=("Shift",))
    git(world.clone, "apply", str(folder / "patches" / "pkg.layers.Shift.patch"))
    file = world.clone / "pkg" / "_triton" / "shift.py"
    file.write_text(file.read_text().replace("x + 1", "x + 2"))
    with pytest.raises(SuggestionRefused, match="header or digest"):
        world.suggest(replace_patch(folder, patch_of(world.clone)))
    assert world.hosting.written() == []


# --------------------------------------------------------------------------- the dry run


def kernelllm(folder, *arguments):
    command = [sys.executable, "-m", "pytest_kernelllm.cli", "suggest", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("below", [".", "pkg"])
def test_a_dry_run_shows_branch_text_and_files(world, below):
    folder = with_a_bad_shift(world, BAD["an edit"][0])
    before = git(world.clone, "status", "--porcelain")
    done = kernelllm(world.clone / below, "--dry-run", "--from", str(folder))
    assert done.returncode == 0, done.stderr
    assert "branch  kernelllm/suggestions/main, from main at " in done.stdout
    assert "new   pkg/_triton/scale.py" in done.stdout and "edit  pkg/layers.py" in done.stdout
    assert "without pkg/layers.py::Shift: " in done.stdout
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
        (("--dry-run", "--from", "pkg"), "neither its report, its page nor a patch"),
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


def test_left_out_kernels_are_annotated(world, tmp_path):
    folder = with_a_bad_shift(world, BAD["an edit"][0])
    done = propose(world, folder, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "::warning title=kernelllm::pkg/layers.py::Shift is left out" in done.stdout
    assert "is left out" in (tmp_path / "summary").read_text()

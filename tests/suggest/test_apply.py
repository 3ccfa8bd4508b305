"""``kernelllm apply``: one after the other, all at once, and from anywhere."""

from pathlib import Path

import pytest
from adoptable import judge, lay_out, snapshot, targets
from repository import git

from pytest_kernelllm.cli import main

FIRST, SECOND = "pkg.layers.First", "pkg.layers.Second"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    judge(lay_out(tmp_path))
    return tmp_path


def adopted(root: Path) -> list[str]:
    return [target.name for target in targets(root) if target.kernel]


@pytest.mark.parametrize("names", [[[]], [[FIRST, SECOND]], [[SECOND], [FIRST]], [["all"]]])
def test_all_ways_lead_to_the_same_files(root: Path, names: list[list[str]]) -> None:
    git(root, "apply", ".kernelllm/patches/all.patch")
    wanted = snapshot(root)
    git(root, "apply", "--reverse", ".kernelllm/patches/all.patch")
    for part in names:
        assert main(["apply", *part]) == 0
    assert snapshot(root) == wanted and adopted(root) == ["First", "Second"]


def test_a_patch_file_from_elsewhere_is_applied_as_it_is(root: Path, tmp_path: Path) -> None:
    patch = root / "sent.patch"
    (root / ".kernelllm/patches" / f"{FIRST}.patch").rename(patch)
    for entry in root.glob(".kernelllm/targets/*/verdicts/*"):
        entry.unlink()
    assert main(["apply", "sent.patch"]) == 0
    assert adopted(root) == ["First"]


def test_what_is_adopted_already_is_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["apply"])
    before = snapshot(root)
    assert main(["apply"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        f"{FIRST} is adopted already",
        f"{SECOND} is adopted already",
    ]
    assert snapshot(root) == before


def test_a_target_that_changed_since_is_named_and_the_others_are_adopted(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = root / "pkg" / "layers.py"
    layers.write_text("import math\n" + layers.read_text().replace("return x\n", "return -x\n", 1))
    assert main(["apply"]) == 2
    out, err = capsys.readouterr()
    assert out == f"applied {SECOND}\n"
    assert err == (
        "kernelllm: pkg/layers.py::First changed since its kernel was verified; run pytest --kernelllm for a new one.\n"
    )
    assert adopted(root) == ["Second"]


def test_a_target_that_is_gone_and_a_patch_that_is_none(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "pkg" / "layers.py").unlink()
    assert main(["apply", FIRST]) == 2
    assert main(["apply", "Third"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == "kernelllm: pkg/layers.py::First is gone; run pytest --kernelllm for what is there now."
    assert second == "kernelllm: There is no target 'Third'; nothing is marked here."


def test_without_patches(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(root)
    for patch in root.glob(".kernelllm/patches/*"):
        patch.unlink()
    assert main(["apply"]) == 2
    [none] = capsys.readouterr().err.splitlines()
    assert none.startswith("kernelllm: There are no patches in ") and none.endswith(
        "run `pytest --kernelllm` first."
    )
    assert snapshot(root) == before


def test_with_git_alone_the_second_single_patch_of_a_package_is_refused(root: Path) -> None:
    """What the page says about it; ``kernelllm apply`` takes both."""
    git(root, "apply", f".kernelllm/patches/{FIRST}.patch")
    with pytest.raises(
        AssertionError, match=r"pkg/_triton/__init__\.py: already exists in working directory"
    ):
        git(root, "apply", f".kernelllm/patches/{SECOND}.patch")
    assert main(["apply", SECOND]) == 0 and adopted(root) == ["First", "Second"]

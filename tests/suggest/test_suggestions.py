"""Which targets get a patch: those whose source has no kernel, or no longer the right one."""

from dataclasses import replace
from pathlib import Path

import pytest
from adoptable import judge, lay_out, patches, snapshot, targets
from judged import accepted, untimed

from kernelllm_judge.core.records import Ratio
from pytest_kernelllm.cli import main
from pytest_kernelllm.discover.adoption import adoption_state
from pytest_kernelllm.suggest.figures import without_figures
from pytest_kernelllm.suggest.patch import apply

FIRST, SECOND = "pkg.layers.First", "pkg.layers.Second"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return lay_out(tmp_path)


def states(root: Path) -> dict[str, str]:
    return {target.name: adoption_state(root, target) for target in targets(root)}


def test_what_is_adopted_and_current_is_left_alone_whatever_is_measured_later(root: Path) -> None:
    judge(root)
    assert main(["apply", FIRST]) == 0
    adopted = snapshot(root)["pkg/_triton/first.py"]
    judge(root, judged=untimed, body="def forward(self, x):\n    return +x\n")
    assert patches(root) == [SECOND]
    assert b"first" not in (root / ".kernelllm/patches" / f"{SECOND}.patch").read_bytes()
    assert main(["apply"]) == 0
    assert snapshot(root)["pkg/_triton/first.py"] == adopted
    assert states(root) == {"First": "current", "Second": "current"}


def slow(candidate):
    """A verdict on a kernel that ``torch.compile`` beats."""
    verdict = accepted(candidate)
    return replace(verdict, timing=(replace(verdict.timing[0], speedup_compiled=Ratio(0.83, 0.8, 0.86)),))


def test_a_patch_that_compile_beats_says_so_in_its_first_line_and_applies(root: Path) -> None:
    judge(root, judged=slow)
    folder = root / ".kernelllm/patches"
    line = "First: this kernel is slower than torch.compile: 0.83x [0.80, 0.86] of its speed.\n"
    warned = (folder / f"{FIRST}.patch").read_bytes()
    assert warned.decode().startswith(line)
    assert (folder / "all.patch").read_text().startswith(line + line.replace("First", "Second"))
    apply(root, folder / "all.patch")
    assert states(root) == {"First": "current", "Second": "current"}


def test_a_warning_does_not_change_what_a_patch_is(root: Path) -> None:
    patch = root / ".kernelllm/patches" / f"{FIRST}.patch"
    judge(root, judged=slow)
    warned = patch.read_bytes()
    judge(root)
    assert warned != patch.read_bytes()
    assert without_figures(warned) == without_figures(patch.read_bytes())


def test_once_the_source_changes_the_next_suggestion_replaces_the_stale_kernel(root: Path) -> None:
    judge(root)
    main(["apply"])
    layers = root / "pkg" / "layers.py"
    layers.write_text(layers.read_text().replace("return x\n", "return 2 * x\n", 1))
    assert states(root) == {"First": "stale", "Second": "current"}
    before = snapshot(root)
    judge(root, body="def forward(self, x):\n    return 2 * x\n")
    assert patches(root) == [FIRST]
    assert main(["apply"]) == 0
    after = snapshot(root)
    assert {path for path in after if after[path] != before.get(path)} == {"pkg/_triton/first.py"}
    assert states(root) == {"First": "current", "Second": "current"}


@pytest.mark.parametrize("change", ["edited", "missing"])
def test_a_kernel_that_was_edited_or_lost_is_offered_again(root: Path, change: str) -> None:
    judge(root)
    main(["apply"])
    whole, kernel = snapshot(root), root / "pkg" / "_triton" / "first.py"
    if change == "edited":
        kernel.write_text(kernel.read_text() + "faster = 1\n")
    else:
        kernel.unlink()
    assert states(root)["First"] == change
    judge(root)
    assert patches(root) == [FIRST]
    main(["apply"])
    assert snapshot(root) == whole


def test_a_combined_patch_of_an_earlier_run_does_not_linger(root: Path) -> None:
    judge(root)
    assert patches(root) == ["all", FIRST, SECOND]
    judge(root, "First")
    assert patches(root) == [FIRST, SECOND]

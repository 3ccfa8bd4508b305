"""``kernelllm revert``: the way back, all of it or none."""

import shutil
from pathlib import Path

import pytest
from adoptable import git, judge, lay_out, snapshot, targets

from pytest_kernelllm.cli import main
from pytest_kernelllm.suggest import files as writing

FIRST, SECOND = "pkg/layers.py::First", "pkg/layers.py::Second"


@pytest.fixture(params=["git", "no git"])
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.chdir(tmp_path)
    judge(lay_out(tmp_path, repository=request.param == "git"))
    assert main(["apply"]) == 0
    if request.param == "no git":
        monkeypatch.setenv("PATH", "")
    return tmp_path


def adopted(root: Path) -> list[str]:
    return [target.name for target in targets(root) if target.kernel]


def test_all_leaves_nothing_behind(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled = root / "pkg/_triton/__pycache__"
    compiled.mkdir()
    (compiled / "first.cpython-311.pyc").write_bytes(b"")
    assert main(["revert", "--all"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"reverted {FIRST}", f"reverted {SECOND}"]
    assert not (root / "pkg/_triton").exists()
    if (root / ".git").exists() and shutil.which("git"):
        assert git(root, "status", "--porcelain") == ""


def test_one_of_two_leaves_the_other_and_its_package(root: Path) -> None:
    whole = snapshot(root)
    assert main(["revert", FIRST]) == 0
    assert adopted(root) == ["Second"]
    left = snapshot(root)
    assert set(whole) - set(left) == {"pkg/_triton/first.py"}
    assert {path for path in left if left[path] != whole[path]} == {"pkg/layers.py"}
    assert main(["apply", "pkg.layers.First"]) == 0 and snapshot(root) == whole


def test_from_a_subfolder_names_are_relative_to_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "pkg")
    assert main(["revert", "layers.py::First"]) == 0
    assert adopted(root) == ["Second"]


def test_without_names_it_says_what_is_adopted(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = snapshot(root)
    for arguments in ([], ["pkg/layers.py::Third"], ["--all", FIRST]):
        assert main(["revert", *arguments]) == 2
    assert snapshot(root) == whole
    assert capsys.readouterr().err.splitlines() == [
        f"kernelllm: Adopted are {FIRST}, {SECOND}; name what to revert, or use --all.",
        f"kernelllm: There is no adopted target 'pkg/layers.py::Third'; the nearest are {FIRST}, {SECOND}.",
        "kernelllm: Name targets or use --all, not both.",
    ]
    main(["revert", "--all"])
    assert main(["revert"]) == 2
    assert capsys.readouterr().err == "kernelllm: No kernel is adopted here.\n"


def test_a_kernel_that_was_edited_stays_unless_forced(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = root / "pkg/_triton/first.py"
    kernel.write_text(kernel.read_text() + "mine = 1\n")
    assert main(["revert", FIRST]) == 0
    assert kernel.exists() and adopted(root) == ["Second"]
    assert (
        "pkg/_triton/first.py stays: it was edited by hand (--force deletes it).\n" in capsys.readouterr().out
    )
    layers = root / "pkg/layers.py"
    layers.write_text(
        layers.read_text().replace("@triton_candidate\n", '@triton_candidate(kernel="pkg._triton.first")\n')
    )
    assert main(["revert", "--force", FIRST]) == 0
    assert not kernel.exists()


@pytest.mark.parametrize(
    "text",
    [
        "from pkg._triton import second, first\n",
        "from pkg._triton import (\n    first,\n)\n",
        "import pkg._triton.first as kernel\n",
        "from ._triton.first import forward\n",
        "open('pkg/_triton/first.py')\n",
    ],
)
def test_a_kernel_that_other_code_names_stays(
    root: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "pkg" / "user.py").write_text(text)
    assert main(["revert", "--all"]) == 0
    assert adopted(root) == [] and (root / "pkg/_triton/first.py").exists()
    assert not (root / "pkg/_triton/second.py").exists() or "second" in text
    assert "pkg/_triton/first.py stays: pkg/user.py uses it.\n" in capsys.readouterr().out


def test_a_kernel_that_another_target_runs_stays(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = root / "pkg/layers.py"
    layers.write_text(layers.read_text().replace("_triton.second", "_triton.first"))
    assert main(["revert", FIRST]) == 0
    assert (root / "pkg/_triton/first.py").exists()
    assert f"pkg/_triton/first.py stays: {SECOND} uses it.\n" in capsys.readouterr().out


def test_a_namesake_in_another_package_keeps_nothing(root: Path) -> None:
    shutil.copytree(root / "pkg", root / "twin")
    for file in root.glob("twin/**/*.py"):
        file.write_text(
            file.read_text().replace("pkg", "twin") + ("" if "_triton" in str(file) else "first = 1\n")
        )
    assert main(["revert", FIRST]) == 0
    assert not (root / "pkg/_triton/first.py").exists() and (root / "twin/_triton/first.py").exists()


def test_a_module_of_ones_own_and_a_package_with_more_in_it_stay(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "pkg/_triton/first.py").write_text("def forward(self, x):\n    return x\n")
    (root / "pkg/_triton/__init__.py").write_text("VERSION = 1\n")
    assert main(["revert", "--all"]) == 0
    assert {path.name for path in (root / "pkg/_triton").iterdir()} == {"__init__.py", "first.py"}
    assert "pkg/_triton/first.py stays: it is not a generated kernel.\n" in capsys.readouterr().out


def test_a_stale_or_missing_kernel_is_no_hindrance(root: Path) -> None:
    layers = root / "pkg/layers.py"
    layers.write_text(layers.read_text().replace("return x\n", "return -x\n", 1))
    (root / "pkg/_triton/second.py").unlink()
    assert main(["revert", "--all"]) == 0
    assert adopted(root) == [] and not (root / "pkg/_triton").exists()


def test_a_marker_that_cannot_be_edited_changes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "pkg/more.py").write_text(
        "from pytest_kernelllm import triton_candidate\nclass C: ...\n"
        'triton_candidate(C, kernel="pkg._triton.first"); triton_candidate(C)\n'
    )
    whole = snapshot(root)
    assert main(["revert", "pkg/layers.py::First", "pkg/more.py::C"]) == 2
    assert snapshot(root) == whole
    assert (
        "kernel= cannot be removed from the marker of C because the class has 2 markers"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("command", [["revert", "--all"], ["apply"]])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_failure_in_the_middle_undoes_what_was_done(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    error: BaseException,
    call: int,
) -> None:
    """A disk that fills up, or Ctrl-C, at each write in turn."""
    monkeypatch.chdir(tmp_path)
    judge(lay_out(tmp_path))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "layers.py").write_text((tmp_path / "pkg/layers.py").read_text())
    judge(tmp_path)
    if command[0] == "revert":
        main(["apply"])
    whole, calls, write = snapshot(tmp_path), [], writing.write_atomic

    def failing(path: Path, content: bytes, mode: int | None = None) -> None:
        calls.append(path)
        if len(calls) == call:
            raise error
        write(path, content, mode=mode)

    monkeypatch.setattr(writing, "write_atomic", failing)
    code = main(command)
    assert len(calls) >= min(call, 2)
    if len(calls) >= call:
        assert code == (130 if isinstance(error, KeyboardInterrupt) else 2)
        assert snapshot(tmp_path) == whole
        folders = set(tmp_path.rglob("_triton"))
        assert len(folders) == (2 if command[0] == "revert" else 0)

"""One name for a target everywhere: what a person may type, for every command that takes a target."""

from __future__ import annotations

from pathlib import Path

import pytest
from adoptable import judge, lay_out, targets

from pytest_kernelllm.cli import main
from pytest_kernelllm.commands.common import CommandError
from pytest_kernelllm.commands.targets import find_target, named_targets

FIRST, SECOND = "pkg/layers.py::First", "pkg/layers.py::Second"
NAMES = [
    FIRST,
    "First",
    "pkg.layers.First",
    "pkg.layers.First.patch",
    "layers.First",
    "./pkg/layers.py::First",
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    judge(lay_out(tmp_path))
    return tmp_path


def adopted(root: Path) -> list[str]:
    return [target.id for target in targets(root) if target.kernel]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_means_the_target(root: Path, name: str) -> None:
    assert [target.id for target in named_targets(name, targets(root), root)] == [FIRST]
    assert find_target(name).id == FIRST
    assert main(["apply", name]) == 0
    assert adopted(root) == [FIRST]
    assert main(["apply"]) == 0
    assert main(["revert", name]) == 0
    assert adopted(root) == [SECOND]


def test_a_file_means_all_of_its_targets(root: Path) -> None:
    assert main(["apply", "pkg/layers.py"]) == 0
    assert adopted(root) == [FIRST, SECOND]
    assert main(["revert", "pkg/layers.py"]) == 0
    assert adopted(root) == []


def test_a_file_is_named_from_where_the_user_stands(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "pkg")
    for name in ("layers.py::First", FIRST):
        assert main(["apply", name]) == 0
        assert adopted(root) == [FIRST]
        assert main(["revert", name]) == 0


@pytest.mark.parametrize("name", ["Frist", "pkg/layers.py::Frist", "nope.py", "nope.py::First", "::First"])
@pytest.mark.parametrize(
    "command",
    [["apply"], ["revert"], ["generate"], ["export", "out", "--to=hf-kernels", "--only"]],
    ids=lambda c: c[0],
)
def test_what_means_nothing_is_said_with_the_nearest(
    root: Path, capsys: pytest.CaptureFixture[str], command: list[str], name: str
) -> None:
    assert main(["apply"]) == 0
    capsys.readouterr()
    assert main([*command, name]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith(
        (
            "kernelllm: There is no ",
            "kernelllm: pkg/layers.py marks no ",
            "kernelllm: pkg/layers.py has no target ",
        )
    )
    assert FIRST in said or "First, Second" in said


def test_two_of_a_name_are_listed(root: Path) -> None:
    (root / "other.py").write_text((root / "pkg" / "layers.py").read_text())
    with pytest.raises(CommandError, match=r"First names other.py::First, pkg/layers.py::First; name one"):
        find_target("First")


def test_of_many_the_nearest_three_are_named(root: Path) -> None:
    text = (root / "pkg" / "layers.py").read_text()
    for number in range(3):
        (root / f"more{number}.py").write_text(text.replace("First", f"Third{number}"))
    with pytest.raises(CommandError) as caught:
        named_targets("Thrid", targets(root), root)
    assert "the nearest are more" in str(caught.value) and str(caught.value).count("::Third") == 3

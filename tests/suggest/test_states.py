"""Every command in every state of an adoption: what it says is so afterwards, and where it refuses nothing changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from adoptable import judge, lay_out, patches, snapshot, targets
from repository import git

from pytest_kernelllm.cli import main
from pytest_kernelllm.discover.adoption import adoption_state
from pytest_kernelllm_hooks.findings import findings

NAME, TARGET = "pkg.layers.First", "pkg/layers.py::First"
BODY = "def forward(self, x):\n    return x\n"


def layers(root: Path) -> Path:
    return root / "pkg" / "layers.py"


def kernel(root: Path) -> Path:
    return root / "pkg" / "_triton" / "first.py"


def edit(root: Path) -> None:
    """Give the class another meaning."""
    text = layers(root).read_text()
    layers(root).write_text(text.replace("return x\n", "return -x\n", 1))


def touch(root: Path) -> None:
    """Edit the kernel by hand."""
    kernel(root).write_text(kernel(root).read_text() + "\nX = 1\n")


def adopt(root: Path) -> None:
    assert main(["apply", NAME]) == 0
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "adopted")


STATES: dict[str, tuple[Callable[[Path], object], ...]] = {
    "unadopted": (),
    "unadopted, edited since": (edit,),
    "adopted": (adopt,),
    "stale": (adopt, edit),
    "edited": (adopt, touch),
    "edited and stale": (adopt, edit, touch),
    "missing": (adopt, lambda root: kernel(root).unlink()),
    "reverted": (adopt, lambda root: main(["revert", TARGET])),
    "reverted, and the kernel stays": (adopt, touch, lambda root: main(["revert", TARGET])),
    "judged for another source": (
        adopt,
        edit,
        lambda root: judge(root, "First"),
        lambda root: git(root, "checkout", "-q", "."),
    ),
    "judged before an edit": (adopt, edit, lambda root: judge(root, "First"), edit, touch),
    "judged while it was edited": (adopt, touch, lambda root: judge(root, "First")),
    "judged while it was edited, then reverted": (
        adopt,
        touch,
        lambda root: judge(root, "First"),
        lambda root: main(["revert", TARGET]),
    ),
    "judged while it was edited, then gone": (
        adopt,
        touch,
        lambda root: judge(root, "First"),
        lambda root: kernel(root).unlink(),
    ),
    "the verdict is forgotten": (
        adopt,
        edit,
        lambda root: judge(root, "First"),
        lambda root: git(root, "checkout", "-q", "."),
        lambda root: shutil.rmtree(root / ".kernelllm" / "targets"),
    ),
    "the class is gone": (lambda root: layers(root).write_text("x = 1\n"),),
}


@pytest.fixture(params=STATES)
def root(request, tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    judge(lay_out(tmp_path), "First")
    for step in STATES[request.param]:
        step(tmp_path)
    return tmp_path


def state(root: Path) -> str:
    """What stands there: the state of the adoption; ``none`` without one."""
    target = next((t for t in targets(root) if t.id == TARGET), None)
    return "none" if target is None or target.kernel is None else adoption_state(root, target)


@pytest.mark.parametrize("name", [NAME, "all of them", "the file"])
def test_apply(root: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    before, was = snapshot(root), state(root)
    given = {NAME: [NAME], "all of them": [], "the file": [f".kernelllm/patches/{NAME}.patch"]}[name]
    capsys.readouterr()
    code = main(["apply", *given])
    out, err = capsys.readouterr()
    said = f"applied {NAME}\n" in out
    if said or "is adopted already" in out:
        assert code == 0 and not err and state(root) == "current"
        assert said == (was != "current")
    else:
        assert code == 2 and err.startswith("kernelllm: ")
        assert snapshot(root) == before


def test_revert(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, was = snapshot(root), state(root)
    code = main(["revert", TARGET])
    assert (code == 0) == (was != "none")
    if code:
        assert snapshot(root) == before
    else:
        assert state(root) == "none" and f"reverted {TARGET}" in capsys.readouterr().out
        assert kernel(root).exists() == (
            was in ("edited", "stale") and "X = 1" in before["pkg/_triton/first.py"].decode()
        )


def test_check(root: Path) -> None:
    before = snapshot(root)
    found = list(findings([layers(root), *root.glob("pkg/_triton/*.py")], root))
    assert bool(found) == (state(root) in ("stale", "edited", "missing"))
    assert snapshot(root) == before


def test_doctor(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(root)
    capsys.readouterr()
    main(["doctor"])
    out = capsys.readouterr().out
    runs = f"{TARGET} runs pkg._triton.first" in out
    assert not runs or state(root) == "current"
    assert (f"{TARGET} runs its original forward" in out) or state(root) in ("none", "current")
    assert snapshot(root) == before


def test_run(root: Path) -> None:
    """What a run writes can be applied right after it."""
    if not targets(root):
        return
    judge(root, "First")
    assert (NAME in patches(root)) == (state(root) != "current")
    if NAME in patches(root):
        assert main(["apply", NAME]) == 0
    assert state(root) == "current"

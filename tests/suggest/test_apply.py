"""``kernelllm apply``: one after the other, all at once, from anywhere, and asked for each."""

import io
import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from adoptable import judge, lay_out, snapshot, targets
from judged import untimed
from projects import COMMAND
from repository import git
from rich.console import Console

from pytest_kernelllm.cli import main
from pytest_kernelllm.commands.ask import QUESTION, ask_for_each
from pytest_kernelllm.commands.project import ProjectContext
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.offers import offers

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


def test_without_patches_and_without_a_terminal(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(root)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["apply", "--interactive"]) == 2
    for patch in root.glob(".kernelllm/patches/*"):
        patch.unlink()
    assert main(["apply"]) == 2
    asked, none = capsys.readouterr().err.splitlines()
    assert asked == ("kernelllm: `kernelllm apply --interactive` needs a terminal; name the patches instead.")
    assert none.startswith("kernelllm: There are no patches in ") and none.endswith(
        "run `pytest --kernelllm` first."
    )
    assert snapshot(root) == before


# ---------------------------------------------------------------- asked


def answering(*replies: str | type[BaseException]) -> Callable[[str], str]:
    """A person who types these, then holds Ctrl-D."""
    left: Iterator[str | type[BaseException]] = iter(replies)

    def answer(question: str) -> str:
        assert question == QUESTION
        reply = next(left, EOFError)
        if isinstance(reply, str):
            return reply
        raise reply

    return answer


def asked(root: Path, *replies: str | type[BaseException]) -> tuple[int, str]:
    """Exit code, and what was shown."""
    store, shown = Store(root), io.StringIO()
    found = offers(store, [root / ".kernelllm/patches" / f"{name}.patch" for name in (FIRST, SECOND)])
    console = Console(file=shown, highlight=False, soft_wrap=True)
    return ask_for_each(ProjectContext(root, store), found, answering(*replies), console), shown.getvalue()


@pytest.mark.parametrize(
    ("replies", "code", "wanted", "last"),
    [
        (["y", "y"], 0, ["First", "Second"], f"2 of 2 applied: {FIRST}, {SECOND}"),
        (["n", "yes"], 0, ["Second"], f"1 of 2 applied: {SECOND}"),
        (["", "what", "Y", "n"], 0, ["First"], f"1 of 2 applied: {FIRST}"),
        (["a"], 0, ["First", "Second"], f"2 of 2 applied: {FIRST}, {SECOND}"),
        (["q"], 0, [], "0 of 2 applied"),
        (["y"], 0, ["First"], f"1 of 2 applied: {FIRST}"),
        (["y", KeyboardInterrupt], 130, ["First"], f"1 of 2 applied: {FIRST}"),
    ],
)
def test_every_answer(root: Path, replies: list[str], code: int, wanted: list[str], last: str) -> None:
    found, shown = asked(root, *replies)
    assert (found, adopted(root)) == (code, wanted)
    assert shown.splitlines()[-1] == last


def test_change_and_numbers_are_shown_as_often_as_wanted(root: Path) -> None:
    _, shown = asked(root, "d", "d", "n", "q")
    assert shown.count("1 of 2: pkg.layers.First") == 1 and shown.count("2 of 2: pkg.layers.Second") == 1
    assert shown.count('+@triton_candidate(kernel="pkg._triton.first")\n') == 3
    assert shown.count("\nspeedup: 1.83x [1.80, 1.86] over eager, ") == 4
    assert shown.count("\nverified: on NVIDIA H200 (sm_90)") == 4


def test_what_was_not_measured_is_said(root: Path) -> None:
    judge(root, judged=untimed)
    for entry in root.glob(".kernelllm/targets/*/verdicts/*"):
        if "NVIDIA H200" in entry.read_text():
            entry.unlink()
    _, shown = asked(root, "n", "n")
    assert shown.count("verified: in Triton's interpreter, compiled for sm_90, not timed") == 4
    assert shown.count("\nspeedup: not measured\n") == 2
    for entry in root.glob(".kernelllm/targets/*/verdicts/*"):
        entry.unlink()
    _, shown = asked(root, "y", "n")
    assert "no measurements: the verdict behind this patch is not in the store" in shown
    assert "speedup: not" not in shown and adopted(root) == ["First"]


def test_a_kernel_cannot_talk_to_the_terminal(root: Path) -> None:
    judge(root, body="def forward(self, x):\n    return x  # \x1b[2J \x9b1A \u202e\n")
    _, shown = asked(root, "n", "n")
    assert "return x  # \ufffd[2J \ufffd1A \ufffd\n" in shown and not set("\x1b\x9b\u202e") & set(shown)


def test_a_failure_among_them_is_said_and_the_next_is_asked(root: Path) -> None:
    layers = root / "pkg" / "layers.py"
    layers.write_text(layers.read_text().replace("return x\n", "return -x\n", 1))
    code, shown = asked(root, "y")
    assert code == 0 and adopted(root) == ["Second"]
    assert "kernelllm: pkg/layers.py::First changed since its kernel was verified" in shown


def test_at_a_real_terminal_in_colour(root: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {
        "TERM": "xterm",
        "COLUMNS": "200",
    }
    command = [*COMMAND, "apply", "-i"]
    with subprocess.Popen(
        command, cwd=root / "pkg", stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        os.write(ours, b"d\nn\ny\n")
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
    os.close(ours)
    text = shown.decode()
    assert process.returncode == 0 and adopted(root) == ["Second"]
    assert text.count(QUESTION.strip()) == 3 and f"1 of 2 applied: {SECOND}" in text
    assert '\x1b[32m+@triton_candidate(kernel="pkg._triton.first")' in text


def test_with_git_alone_the_second_single_patch_of_a_package_is_refused(root: Path) -> None:
    """What the page says about it; ``kernelllm apply`` takes both."""
    git(root, "apply", f".kernelllm/patches/{FIRST}.patch")
    with pytest.raises(
        AssertionError, match=r"pkg/_triton/__init__\.py: already exists in working directory"
    ):
        git(root, "apply", f".kernelllm/patches/{SECOND}.patch")
    assert main(["apply", SECOND]) == 0 and adopted(root) == ["First", "Second"]

"""``kernelllm-check`` on projects with an adopted kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hook_project import KERNEL, adopt, edit, lay_out
from projects import GOOD, LAYERS

from pytest_kernelllm.discover.adoption import adoption_state
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm_hooks.check import main

HEAD, MARKED = LAYERS.split("@triton_candidate")
SECOND = "@triton_candidate" + MARKED.replace("class Scale", "class Twice")
IN_A_FUNCTION = f"{HEAD}def make():\n" + "    @triton_candidate" + MARKED.replace("\n", "\n    ")
HELPED = LAYERS.replace("return x * self.weight + 1", "return plus_one(x * self.weight)").replace(
    "from torch import nn", "from torch import nn\n\nfrom maths import plus_one"
)
MATHS = "def plus_one(x):\n    return x + 1\n"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def check(capsys):
    """Runs the hook; its lines, after its exit code was seen to agree with them."""

    def run(*arguments: str, doubts: int = 0) -> list[str]:
        code = main(arguments)
        lines = capsys.readouterr().out.splitlines()
        assert code == (len(lines) > doubts)
        for line in lines:
            assert re.fullmatch(r"[^:]+\.py:\d+: [^;]+(; [^;]+)+[^.]", line), line
        return lines

    return run


def test_an_adopted_kernel_as_it_was_generated_passes(project, check) -> None:
    assert check("layers.py", KERNEL) == []


@pytest.mark.parametrize("changed", ["layers.py", KERNEL], ids=["target", "kernel"])
def test_a_hand_edited_kernel_is_named_whichever_side_changed(project, check, changed) -> None:
    edit(project / KERNEL, "* tl.load(weight_ptr + columns) + 1", "* tl.load(weight_ptr + columns) + 2")
    [line] = check(changed)
    number = 1 + [t.startswith("# digest: ") for t in (project / KERNEL).read_text().splitlines()].index(True)
    assert line == (
        f"{KERNEL}:{number}: the kernel of layers.py::Scale was edited after it was generated; "
        "restore it, or run `pytest --kernelllm-only layers.py` for a new one"
    )


@pytest.mark.parametrize("changed", ["layers.py", KERNEL], ids=["target", "kernel"])
def test_a_stale_kernel_is_named_whichever_side_changed(project, check, changed) -> None:
    edit(project / "layers.py", "x * self.weight + 1", "x * self.weight + 3")
    [line] = check(changed)
    assert line == (
        "layers.py:12: _triton.scale is stale: it was not made for the current source of Scale; "
        "run `pytest --kernelllm-only layers.py` for a new one"
    )


def test_both_sides_changed_make_one_line_a_problem(project, check) -> None:
    edit(project / "layers.py", "x * self.weight + 1", "x * self.weight + 3")
    edit(project / KERNEL, "    return out", "    return +out")
    lines = check("layers.py", KERNEL)
    assert len(lines) == 2 and lines == check(KERNEL, "layers.py")
    assert "was edited" in lines[0] and "is stale" in lines[1]


def test_a_kernel_that_is_not_there_is_named(project, check) -> None:
    (project / KERNEL).unlink()
    [line] = check("layers.py")
    assert line.startswith("layers.py:12: Scale names the kernel _triton.scale, which does not exist; apply ")


def test_a_kernel_made_before_there_were_digests_is_said_to_be(project, check) -> None:
    lines = (project / KERNEL).read_text().splitlines(keepends=True)
    (project / KERNEL).write_text("".join(line for line in lines if not line.startswith("# digest: ")))
    [line] = check(KERNEL)
    assert line.startswith(
        f"{KERNEL}:1: the kernel of layers.py::Scale has no digest, so an edit would not show"
    )


def test_a_kernel_that_lost_its_whole_header_is_found_through_its_neighbour(project, check) -> None:
    text = (project / KERNEL).read_text()
    (project / KERNEL).write_text(re.sub(r"\A(#.*\n)+", "", text))
    assert any("has no digest" in line for line in check(KERNEL))


def test_a_kernel_that_claims_another_target_is_found_through_its_neighbour(project, check) -> None:
    edit(project / KERNEL, "for layers.py::Scale", "for other.py::Scale")
    [line] = check(KERNEL)
    assert "the kernel of layers.py::Scale was edited" in line


def test_a_generated_kernel_whose_target_is_gone_must_still_be_as_it_was(project, check) -> None:
    (project / "layers.py").unlink()
    assert check(KERNEL) == []
    edit(project / KERNEL, "    return out", "    return +out")
    [line] = check(KERNEL)
    assert line.startswith(f"{KERNEL}:") and "a generated kernel was edited" in line


def test_a_candidate_copied_from_an_adopted_kernel_may_be_edited(project, check) -> None:
    (project / "candidates").mkdir()
    copy = (project / KERNEL).read_text().replace("    return out", "    return +out")
    (project / "candidates" / "Scale.py").write_text(copy)
    (project / "candidates" / "Scale_1.py").write_text(GOOD + "\nSUPPORTS = ()\n")
    assert check("candidates/Scale.py", "candidates/Scale_1.py") == []


def test_a_checkout_with_other_line_ends_is_no_edit(project, check) -> None:
    for name in ("layers.py", KERNEL):
        (project / name).write_bytes((project / name).read_bytes().replace(b"\n", b"\r\n"))
    assert check("layers.py", KERNEL) == []


def test_comments_and_formatting_of_the_target_make_nothing_stale(project, check) -> None:
    edit(project / "layers.py", "return x * self.weight + 1", "return (x * self.weight) + 1  # affine")
    assert check("layers.py") == []


def test_targets_without_a_kernel_and_files_without_a_target_pass(tmp_path, monkeypatch, check) -> None:
    monkeypatch.chdir(tmp_path)
    Path("layers.py").write_text(LAYERS)
    Path("plain.py").write_text("x = 1\n")
    assert check("layers.py", "plain.py", "deleted.py") == []


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        (IN_A_FUNCTION, "14", "cannot be a target; move it to"),
        (LAYERS.replace("init=(64,)", "kernel=NAME"), "12", "is not a string literal; write the module's"),
        (LAYERS.replace("return x *", "return x * *"), "21", r"cannot be read as Python \(.*\); correct it"),
    ],
    ids=["in a function", "kernel= by name", "syntax"],
)
def test_markers_that_cannot_work_are_named(tmp_path, monkeypatch, check, text, where, said) -> None:
    monkeypatch.chdir(tmp_path)
    Path("layers.py").write_text(text)
    [line] = check("layers.py")
    assert re.match(rf"layers\.py:{where}: .*{said}", line), line


def test_a_changed_helper_is_seen_by_all_but_not_by_its_own_name(tmp_path, monkeypatch, check) -> None:
    monkeypatch.chdir(tmp_path)
    Path("maths.py").write_text(MATHS)
    lay_out(tmp_path, HELPED)
    assert check("--all") == []
    edit(tmp_path / "maths.py", "x + 1", "x + 2")
    assert check("maths.py") == []
    [line] = check("--all")
    assert "_triton.scale is stale" in line


def test_without_files_every_one_is_checked(project, check) -> None:
    """As with ruff: a silent success that read nothing would mislead who runs it by hand."""
    assert check() == []
    (project / "broken.py").write_text("triton_candidate(\n")
    assert check() == check("--all") != []


def test_all_leaves_out_virtual_environments_and_hidden_folders(project, check) -> None:
    for folder, mark in ((".hidden", "x"), ("env", "pyvenv.cfg")):
        (project / folder).mkdir()
        (project / folder / mark).touch()
        (project / folder / "broken.py").write_text("triton_candidate(\n")
    assert check("--all") == []


def test_a_project_below_the_repository_has_its_own_root(tmp_path, monkeypatch, check) -> None:
    monkeypatch.chdir(tmp_path)
    part = tmp_path / "part"
    (part / "src").mkdir(parents=True)
    (part / "src" / "maths.py").write_text(MATHS)
    lay_out(part, HELPED, folder="tools")
    assert check("--root=part", "part/tools/layers.py") == []
    edit(part / "src" / "maths.py", "x + 1", "x + 2")
    [line] = check("--root=part", "part/tools/layers.py")
    assert line.startswith("part/tools/layers.py:14: _triton.scale is stale")
    assert line.endswith("; run `pytest --kernelllm-only part/tools/layers.py` for a new one")


def test_two_targets_in_one_file_are_told_apart(tmp_path, monkeypatch, check) -> None:
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path, f"{LAYERS}\n\n{SECOND}")
    adopt(tmp_path, "Twice")
    assert check("layers.py") == []
    edit(tmp_path / "_triton" / "twice.py", "    return out", "    return +out")
    [line] = check("_triton/twice.py")
    assert "the kernel of layers.py::Twice was edited" in line


OUTSIDE = LAYERS.replace("import torch\n", "import torch\nfrom surely_not_installed import add\n", 1).replace(
    "x * self.weight + 1", "add(x * self.weight, 1)"
)
IN_AN_ENVIRONMENT_WITHOUT_TORCH = """
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find_spec(name, *rest)
from pytest_kernelllm_hooks.check import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("torch", [True, False], ids=["the project's", "the hook's own"])
def test_what_depends_on_a_package_that_is_not_installed_is_a_doubt_outside_the_projects_environment(
    tmp_path, torch
) -> None:
    lay_out(tmp_path, OUTSIDE)
    edit(tmp_path / "layers.py", "add(x * self.weight, 1)", "add(x * self.weight, 2)")
    script = "import pytest_kernelllm_hooks.check as c; raise SystemExit(c.main())"
    command = [sys.executable, "-c", script if torch else IN_AN_ENVIRONMENT_WITHOUT_TORCH, "layers.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == torch, done.stdout + done.stderr
    doubt = (
        "layers.py:13: cannot tell whether _triton.scale is stale: surely_not_installed not installed here; "
        "name it in the hook's additional_dependencies, or set language: system\n"
    )
    assert ("is stale: it was not made" in done.stdout) if torch else done.stdout == doubt


def test_an_edited_kernel_is_not_current_so_that_a_new_one_is_suggested(project) -> None:
    [target] = scan([project / "layers.py"], project).targets
    assert adoption_state(project, target) == "current"
    edit(project / KERNEL, "    return out", "    return +out")
    assert adoption_state(project, target) == "edited"


@pytest.mark.parametrize("files", [["layers.py", KERNEL], ["plain.py"]], ids=["targets", "no targets"])
def test_nothing_heavy_is_imported(project, files) -> None:
    (project / "plain.py").write_text("x = 1\n")
    script = (
        "import sys; from pytest_kernelllm_hooks.check import main; code = main(sys.argv[1:])\n"
        "heavy = {'torch', 'triton', 'pytest', 'rich', 'numpy', 'filelock'} & set(sys.modules)\n"
        "print(code, sorted(heavy), 'pytest_kernelllm' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *files], cwd=project, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"0 [] {files != ['plain.py']}\n"

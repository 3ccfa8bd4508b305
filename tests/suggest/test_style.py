"""Kernel modules and edits as the project's own formatter and linter want them."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from completions import DATA, TABLE, live_target
from judged import accepted
from rendering import constructors

from kernelllm_judge.core.kernel_module import digest, unmodified
from kernelllm_judge.core.records import Candidate, Completion
from kernelllm_judge.render.render import render
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.suggest.edit import remove_kernel, set_kernel
from pytest_kernelllm.suggest.figures import shipped
from pytest_kernelllm.suggest.style import LINTED, Style

COMPLETIONS = (
    "dialect_layer_norm",
    "dialect_softmax",
    "hand_old_math",
    "hand_rms_autotuned",
)
"""Of both styles: translated from a compiler's output, and written by hand."""
LENGTHS = (79, 88, 100, 120)
KERNEL = "_triton/kernel.py"
RUFF = "[tool.ruff]\n"
"""A configuration that changes nothing; with it, none is looked for above the project."""


@cache
def kernel(name: str) -> str:
    """The kernel module that a stored completion becomes, as it is suggested."""
    text = (DATA / "completions" / f"{name}.txt").read_text()
    candidate = render(
        Completion("files", 0, text, "modelnew"), live_target(TABLE[name].target), constructors()
    )
    return shipped(candidate, accepted(candidate)).source


def tool(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=root, capture_output=True, text=True, check=False
    )


def must(root: Path, *command: str) -> None:
    done = tool(root, *command)
    assert done.returncode == 0, done.stdout + done.stderr


def project(root: Path, configuration: str) -> Style:
    (root / "_triton").mkdir()
    (root / "pyproject.toml").write_text(configuration)
    return Style(root)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_kernel_is_born_as_the_project_s_formatter_and_linter_want_it(tmp_path, length) -> None:
    style = project(tmp_path, f"[tool.ruff]\nline-length = {length}\n")
    for name in COMPLETIONS:
        path = f"_triton/{name}.py"
        (tmp_path / path).write_text(style.kernel(path, kernel(name)))
        assert digest((tmp_path / path).read_text()) == digest(kernel(name))
    must(tmp_path, "ruff", "format", "--check", ".")
    must(tmp_path, "ruff", "check", ".")
    must(tmp_path, "ruff", "check", "--extend-select", LINTED, ".")
    must(tmp_path, "black", "--quiet", "--check", "--line-length", str(length), ".")
    assert style.notes == []


@pytest.mark.parametrize("formatter", ["ruff format", "black -q --skip-string-normalization"])
def test_a_kernel_stays_verified_however_it_is_formatted(tmp_path, formatter) -> None:
    style = project(tmp_path, RUFF)
    for name in COMPLETIONS:
        path = f"_triton/{name}.py"
        (tmp_path / path).write_text(style.kernel(path, kernel(name)))
    for length in ("60", "120"):
        must(tmp_path, *formatter.split(), "--line-length", length, ".")
        tool(tmp_path, "ruff", "check", "--fix", "--select", "E,F,I,W,B,UP,D", "--line-length", length, ".")
        assert all(unmodified(path.read_bytes()) for path in (tmp_path / "_triton").iterdir())


def test_what_our_renderer_writes_needs_no_exemption(tmp_path) -> None:
    style = project(tmp_path, RUFF)
    lines = {line for name in COMPLETIONS for line in style.kernel(KERNEL, kernel(name)).splitlines()}
    exemptions = {line for line in lines if line.startswith("# ruff: noqa")}
    assert exemptions <= {"# ruff: noqa: PLR0124"}  # x != x is how a kernel finds NaN


MESSY = """import os

import torch


def forward(self, x):
    unused = 1
    l = x
    return l  # {}
""".format("a comment that is too long " * 9)


def messy() -> str:
    """A kernel module that breaks rules, as a model writes it."""
    from kernelllm_judge.core.kernel_module import Provenance, compose

    return compose(Provenance("a.py::A", "0" * 64, "files"), "A.", (), MESSY)


@pytest.mark.parametrize(
    ("configuration", "line"),
    [
        ('[tool.ruff.lint]\nselect = ["E", "F"]\n', "# ruff: noqa: E501, E741, F401, F841"),
        ('[tool.ruff.lint]\nselect = ["F"]\nignore = ["F401"]\n', "# ruff: noqa: E501, E741, F401, F841"),
        ('[tool.ruff.lint]\nselect = ["F", "RUF100"]\n', "# ruff: noqa: E501, E741, F401, F841, RUF100"),
        (
            '[tool.ruff]\nline-length = 300\nlint.select = ["E", "F"]\n',
            "# ruff: noqa: E741, F401, F841",
        ),
    ],
    ids=["the usual", "few rules", "unused exemptions are found", "long lines"],
)
def test_exactly_the_rules_that_a_kernel_breaks_are_exempted(tmp_path, configuration, line) -> None:
    style = project(tmp_path, configuration)
    text = style.kernel(KERNEL, messy())
    assert line in text.splitlines() and "unused = 1" in text
    (tmp_path / KERNEL).write_text(text)
    must(tmp_path, "ruff", "check", ".")
    must(tmp_path, "ruff", "check", "--extend-select", LINTED, ".")
    must(tmp_path, "ruff", "format", "--check", ".")
    assert style.kernel(KERNEL, text) == text and style.notes == []


def test_every_rule_of_a_strict_project_is_met_or_exempted(tmp_path) -> None:
    style = project(tmp_path, '[tool.ruff.lint]\nselect = ["ALL"]\n')
    (tmp_path / KERNEL).write_text(style.kernel(KERNEL, messy()))
    must(tmp_path, "ruff", "check", ".")


def test_a_strict_type_checker_finds_nothing(tmp_path) -> None:
    style = project(tmp_path, "[tool.mypy]\nstrict = true\nfollow_imports = 'skip'\n")
    text = style.kernel(KERNEL, kernel("hand_old_math"))
    (tmp_path / KERNEL).write_text(text)
    must(tmp_path, "mypy", KERNEL)
    (tmp_path / KERNEL).write_text(text.replace("# mypy: ", "# "))
    assert tool(tmp_path, "mypy", KERNEL).returncode == 1


@pytest.mark.parametrize("where", ["pyproject", "hook"])
def test_a_project_that_uses_black_gets_black(tmp_path, where) -> None:
    style = project(tmp_path, "[tool.black]\nline-length = 60\n" if where == "pyproject" else "")
    if where == "hook":
        (tmp_path / ".pre-commit-config.yaml").write_text("repos:\n- repo: x\n  hooks:\n  - id: black\n")
    # Where a comment stands before a body, black and ruff differ.
    text = messy().replace("def forward(self, x):\n", "def forward(self, x):\n\n    # so\n")
    formatted = style.kernel(KERNEL, text)
    (tmp_path / KERNEL).write_text(formatted)
    must(tmp_path, "black", "--quiet", "--check", KERNEL)
    assert digest(formatted) == digest(text) and style.notes == []


def test_line_ends_are_the_project_s(tmp_path) -> None:
    style = project(tmp_path, '[tool.ruff.format]\nline-ending = "cr-lf"\n')
    (tmp_path / KERNEL).write_bytes(style.kernel(KERNEL, messy()).encode())
    must(tmp_path, "ruff", "format", "--check", ".")
    assert unmodified((tmp_path / KERNEL).read_bytes())


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ('[tool.ruff]\nrequired-version = "<0.1"\n', "ruff fails"),
        ("[tool.ruff\n", "ruff fails"),
        ('[tool.black]\nrequired-version = "1"\n', "black fails"),
    ],
)
def test_a_kernel_keeps_its_layout_where_the_formatter_fails(tmp_path, configuration, reason) -> None:
    style = project(tmp_path, configuration)
    assert style.kernel(KERNEL, messy()) == messy()
    assert style.edited("a.py", b"x = 1\n", b"x = 2\n") == b"x = 2\n"
    [note] = style.notes
    assert note.startswith(f"{KERNEL} is not formatted: {reason} (")


@pytest.mark.parametrize("folder", ["_triton", "kernels"])
def test_the_first_kernel_of_a_package_breaks_no_rule_once_it_is_one(tmp_path, folder) -> None:
    rules = '[tool.ruff.lint]\nselect = ["D1", "ANN2", "INP", "RUF100", "E501"]\n'
    style, package = project(tmp_path, rules), tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text('"""A package."""\n')
    written = style.kernel(f"pkg/{folder}/kernel.py", messy(), in_package=True)
    (package / folder).mkdir()
    (package / folder / "__init__.py").write_text('"""A package."""\n')
    (package / folder / "kernel.py").write_text(written)
    must(tmp_path, "ruff", "check", "--no-cache", "pkg")


def test_no_file_of_the_project_is_taken_for_the_formatter(tmp_path) -> None:
    style = project(tmp_path, RUFF)
    for name in ("ruff.py", "json.py", "black.py"):
        (tmp_path / name).write_text("raise SystemExit(1)\n")
    assert style.kernel(KERNEL, messy()) != messy() and style.notes == []


MARKED = '''from torch import nn

from pytest_kernelllm import triton_candidate


def rows(n=6):
    return n


@triton_candidate(inputs=rows, init=(64,), dims={"n": (1, 64)})
class Scale(nn.Module):
    """Multiplies."""
'''


def test_an_edited_file_that_was_formatted_stays_so(tmp_path) -> None:
    style, target, edited = adopted(tmp_path, MARKED)
    new = style.edited("layers.py", MARKED.encode(), edited)
    assert max(map(len, edited.splitlines())) > 88 >= max(map(len, new.splitlines()))
    (tmp_path / "layers.py").write_bytes(new)
    must(tmp_path, "ruff", "format", "--check", ".")
    back = remove_kernel(new, target, tmp_path)
    assert style.edited("layers.py", new, back) == MARKED.encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("import nn", "import  nn"),
        lambda text: text.replace('"n"', "'n'"),
        lambda text: "# coding: latin-1\n# \xe9\n" + text,
    ],
)
def test_in_a_file_that_was_not_formatted_the_edit_stays_minimal(tmp_path, change) -> None:
    text = change(MARKED)
    style, _, edited = adopted(tmp_path, text)
    before = (tmp_path / "layers.py").read_bytes()
    assert style.edited("layers.py", before, edited) == edited
    changed = [
        (one, other)
        for one, other in zip(before.split(b"\n"), edited.split(b"\n"), strict=True)
        if one != other
    ]
    assert len(changed) == 1


def adopted(root: Path, text: str):
    """The project's style, the target in ``layers.py``, and the shortest edit that adopts a kernel for it."""
    style = project(root, RUFF)
    (root / "layers.py").write_bytes(text.encode("latin-1" if "latin-1" in text else "utf-8"))
    [target] = scan_file(root / "layers.py", root).targets
    edited = set_kernel((root / "layers.py").read_bytes(), target, "a_package._triton.scale", root)
    return style, target, edited


def test_a_candidate_without_a_digest_is_left_alone(tmp_path) -> None:
    candidate = Candidate("a.py::A", "def forward(:", "files")
    style = project(tmp_path, RUFF)
    assert style.kernel(KERNEL, candidate.source) == candidate.source and len(style.notes) == 1

"""A marker that the project's formatter wrote is accepted; whatever else differs from the shortest edit is not."""

import subprocess
import sys

import pytest
from world import BRANCH

from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.suggest.edit import set_kernel
from pytest_kernelllm.suggest.github.layout import only_laid_out

SOURCE = '''"""Layers."""

from torch import nn

from pytest_kernelllm import triton_candidate


@triton_candidate(
    init=(64,),  # the width
)
class First(nn.Module):
    """The first.  It has two spaces."""


class Second(nn.Module): ...


Marked = triton_candidate(init=(64,))(Second)
'''


@pytest.fixture
def edits(tmp_path):
    """Compares a change of the shortest edit with it."""
    file = tmp_path / "layers.py"
    file.write_text(SOURCE)
    targets = scan_file(file, tmp_path).targets
    expected = SOURCE.encode()
    for target in targets:
        expected = set_kernel(expected, target, f"_triton.{target.name.lower()}", tmp_path)

    def accepted(old: str, new: str) -> bool:
        text = expected.decode()
        assert old in text
        found = text.replace(old, new).encode(errors="surrogateescape")
        return only_laid_out(SOURCE.encode(), expected, found, targets, tmp_path)

    return accepted


LAID_OUT = {
    "one line": ("(\n    init=(64,),  #", "(init=(64,),  #"),
    "several lines": ("triton_candidate(init=(64,), ", "triton_candidate(\n    init=(64,),\n    "),
    "quotes": ('"_triton.first"', "'_triton.first'"),
    "no comma": ('"_triton.first",', '"_triton.first"'),
    "parentheses": ("(Second)\n", "(\n    (Second)\n)\n"),
}


@pytest.mark.parametrize("case", LAID_OUT)
def test_the_layout_of_a_marker_may_differ(edits, case) -> None:
    assert edits(*LAID_OUT[case])


ELSE = {
    "another argument": ("init=(64,),  #", "init=(65,),  #"),
    "the same digits": ("init=(64,),  #", "init=(46,),  #"),
    "a comment within the marker": ("# the width", "# the  width"),
    "a comment more": ('"_triton.first",', '"_triton.first",  # fine'),
    "no comment": ("  # the width", ""),
    "a docstring": ("two spaces", "2 spaces"),
    "spaces in a docstring": ("first.  It", "first. It"),
    "layout outside": ("import nn\n", "import nn\n\n"),
    "a statement more": ("\n\nMarked", "\n\nimport os\nMarked"),
    "a statement within the marker's lines": ("(Second)\n", "(Second); import os\n"),
    "another decorator": ("@triton_candidate(", "@nn.evil\n@triton_candidate("),
    "an invisible character": ("(64,), kernel", "(64,),\u200b kernel"),
    "another spelling of a name": ("(\n    init", "(\n    \uff49nit"),
    "a carriage return": ('"_triton.first",', '"_triton.first",\r'),
    "a form feed": ('"_triton.first",', '"_triton.first",\x0c'),
    "other line ends": ("\n", "\r\n"),
    "no text": ("init", "\udcff"),
    "no Python": ("@triton", "@@triton"),
    "no marker": ("@triton_candidate(", "@candidate("),
}


@pytest.mark.parametrize("case", ELSE)
def test_nothing_else_may_differ(edits, case) -> None:
    assert not edits(*ELSE[case])


@pytest.mark.parametrize("statement", ["if nn: ", "class Outer: "])
def test_what_shares_a_line_with_a_marker_is_outside_of_it(tmp_path, statement) -> None:
    rest = "else:\n    more = f(1, 2)\n" if statement.startswith("if") else ""
    text = SOURCE.replace("Marked = ", f"{statement}Marked = ") + rest
    file = tmp_path / "layers.py"
    file.write_text(text)
    (target,) = (target for target in scan_file(file, tmp_path).targets if target.name == "Second")
    expected = set_kernel(text.encode(), target, "_triton.second", tmp_path)
    laid_out = expected.replace(b"(64,), k", b"(64,),\n k")
    assert only_laid_out(text.encode(), expected, laid_out, [target], tmp_path)
    if rest:
        elsewhere = expected.replace(b"f(1, 2)", b"f(1,\n 2)")
        assert not only_laid_out(text.encode(), expected, elsewhere, [target], tmp_path)


@pytest.mark.parametrize("ends", ["lf", "cr-lf"])
def test_a_formatted_suggestion_lands(world, ends) -> None:
    configuration = f'[tool.ruff]\nline-length = 40\nformat.line-ending = "{ends}"\n'
    (world.clone / "pyproject.toml").write_text(configuration)
    command = [sys.executable, "-m", "ruff", "format", "pkg/layers.py"]
    subprocess.run(command, cwd=world.clone, check=True)
    world.pushes("formatted")
    assert world.suggest(world.artifact(names=("Shift",))).result == "opened"
    text = world.hosting.show(world.hosting.heads()[BRANCH], "pkg/layers.py")
    end = {"lf": b"\n", "cr-lf": b"\r\n"}[ends]
    assert end + b'    kernel="pkg._triton.shift"' + end in text

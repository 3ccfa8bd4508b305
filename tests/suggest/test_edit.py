import ast
from pathlib import Path

import pytest
from torture import NASTY

from kernelllm_judge.core.records import Target
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.suggest.edit import EditError, remove_kernel, set_kernel

IMPORT = "from pytest_kernelllm import triton_candidate\n"
BODY = "class RMSNorm(nn.Module):\n    def forward(self, x):\n        return x\n"
KERNEL = "_triton.norm"
CASES = {
    name: nasty
    for name, nasty in NASTY.items()
    if nasty.path == "m.py"
    and nasty.encoding.startswith("utf-8")
    and not (nasty.refused or nasty.others or nasty.reformatted)
    and "\r" not in nasty.source
}


def target_in(root: Path, source: bytes, name: str) -> Target:
    """A target as the scan finds it."""
    file = root / "m.py"
    file.write_bytes(source)
    return next(target for target in scan_file(file, root).targets if target.name == name)


def adopt(root: Path, source: bytes, name: str) -> bytes:
    """What ``set_kernel`` makes of a file."""
    return set_kernel(source, target_in(root, source, name), KERNEL, root)


def revert(root: Path, source: bytes, name: str) -> bytes:
    """What ``remove_kernel`` makes of a file."""
    return remove_kernel(source, target_in(root, source, name), root)


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("case", CASES)
def test_only_the_argument_is_added(tmp_path: Path, case: str, ends: str) -> None:
    nasty, end = CASES[case], ends.encode()
    before, after = (nasty.content(marker).replace(b"\n", end) for marker in (nasty.before, nasty.after))
    target = target_in(tmp_path, before, nasty.target)
    edited = set_kernel(before, target, nasty.kernel, tmp_path)
    assert edited == after
    ast.parse(edited)
    assert set_kernel(edited, target, nasty.kernel, tmp_path) == edited
    reverted = revert(tmp_path, edited, nasty.target)
    if nasty.reverted is None:
        assert reverted == before
    assert revert(tmp_path, reverted, nasty.target) == reverted


def test_byte_order_mark_coding_cookie_and_missing_last_line_end_stay(tmp_path: Path) -> None:
    source = f"{IMPORT}from m import RMSNorm\ntriton_candidate(RMSNorm)"
    wanted = f'{IMPORT}from m import RMSNorm\ntriton_candidate(RMSNorm, kernel="{KERNEL}")'
    assert adopt(tmp_path, b"\xef\xbb\xbf" + source.encode(), "RMSNorm") == b"\xef\xbb\xbf" + wanted.encode()
    cookie = "# -*- coding: latin-1 -*-\nx = 'é'; "
    source, wanted = cookie + source.replace("\n", ";", 1), cookie + wanted.replace("\n", ";", 1)
    assert adopt(tmp_path, source.encode("latin-1"), "RMSNorm") == wanted.encode("latin-1")


def test_the_marker_is_found_after_lines_moved(tmp_path: Path) -> None:
    nasty = NASTY["plain"]
    target = Target("m.py", "Norm", 2, "h", "decorator")
    moved = set_kernel(b"# new\n\n" + nasty.content(nasty.before), target, KERNEL, tmp_path)
    assert moved == b"# new\n\n" + nasty.content(nasty.after)


@pytest.mark.parametrize(
    ("marker", "without"),
    [
        ("(kernel='k')", ""),
        ("(\n    kernel='k',\n)", "()"),
        ("(\n    kernel='k'\n)", ""),
        ("( kernel='k', )", "( )"),
        ("(\n    kernel='k'  # why\n)", "(  # why\n)"),
        ("(kernel='k', init=())", "(init=())"),
        ("(kernel = ( 'k' ) , init=())", "(init=())"),
        ("(init=(), kernel='k', dims={})", "(init=(), dims={})"),
        ("(init=(),  kernel='k' )", "(init=() )"),
        ("(kernel='k',\n    init=())", "(\n    init=())"),
        ("(\n    kernel='k',\n    init=(),\n)", "(\n    init=(),\n)"),
        (
            "(\n    init=(),  # a\n    kernel='k',  # b\n    dims={},\n)",
            "(\n    init=(),  # a  # b\n    dims={},\n)",
        ),
        ("(init=(')', [1, (2,)]), kernel='k')", "(init=(')', [1, (2,)]))"),
    ],
)
def test_a_kernel_that_a_person_wrote_is_taken_out_tidily(tmp_path: Path, marker: str, without: str) -> None:
    source, wanted = (f"{IMPORT}@triton_candidate{text}\n{BODY}" for text in (marker, without))
    assert revert(tmp_path, source.encode(), "RMSNorm").decode() == wanted


def test_what_cannot_be_taken_out_is_said(tmp_path: Path) -> None:
    target = Target("m.py", "RMSNorm", 2, "h", "decorator", "k")
    for marker, why in {
        "(kernel=NAME)": "its kernel is the expression `NAME`",
        "(init=(), \\\n    kernel='k')": "unexpected character after line continuation",
    }.items():
        with pytest.raises(EditError) as raised:
            remove_kernel(f"{IMPORT}@triton_candidate{marker}\n{BODY}".encode(), target, tmp_path)
        start = "m.py:2: kernel= cannot be removed from the marker of RMSNorm because "
        assert str(raised.value).startswith(start + why)
        assert str(raised.value).endswith("; remove it by hand.")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (f"{IMPORT}@triton_candidate(**common)\n{BODY}", "`**common` may hold a kernel already"),
        (f"{IMPORT}@triton_candidate(kernel=NAME)\n{BODY}", "its kernel is the expression `NAME`"),
        (
            f"{IMPORT}{BODY}\ntriton_candidate(RMSNorm); triton_candidate(RMSNorm)\n",
            "the class has 2 markers there",
        ),
        (f"{IMPORT}{BODY}", "there is no such marker"),
        (f"{IMPORT}@triton_candidate(\n{BODY}", "was never closed"),
        ("# coding: utf-7\n" + BODY, "because"),
    ],
)
def test_refuses_rather_than_guesses(tmp_path: Path, source: str, why: str) -> None:
    target = Target("m.py", "RMSNorm", 2, "h", "decorator")
    with pytest.raises(EditError) as raised:
        set_kernel(source.encode(), target, KERNEL, tmp_path)
    sentence = str(raised.value)
    assert (
        why in sentence
        and sentence.startswith("m.py:2: ")
        and "\n" not in sentence
        and sentence.endswith(".")
    )

import ast
from pathlib import Path

import pytest

from kernelllm_judge.core.records import Target
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.suggest.edit import EditError, remove_kernel, set_kernel

IMPORT = "from pytest_kernelllm import triton_candidate\n"
BODY = "class RMSNorm(nn.Module):\n    def forward(self, x):\n        return x\n"
KERNEL = "pkg._triton.rms_norm"

# name: (source, the same with the kernel, target's name)
SOURCES: dict[str, tuple[str, str, str]] = {
    "bare decorator": (
        f"{IMPORT}@triton_candidate\n{BODY}",
        f'{IMPORT}@triton_candidate(kernel="{KERNEL}")\n{BODY}',
        "RMSNorm",
    ),
    "bare in parentheses, with a comment": (
        f"{IMPORT}@(triton_candidate)  # fast\n{BODY}",
        f'{IMPORT}@(triton_candidate(kernel="{KERNEL}"))  # fast\n{BODY}',
        "RMSNorm",
    ),
    "empty call": (
        f"{IMPORT}@triton_candidate( )\n{BODY}",
        f'{IMPORT}@triton_candidate(kernel="{KERNEL}" )\n{BODY}',
        "RMSNorm",
    ),
    "empty call without a blank": (
        f"{IMPORT}@triton_candidate()\n{BODY}",
        f'{IMPORT}@triton_candidate(kernel="{KERNEL}",)\n{BODY}',
        "RMSNorm",
    ),
    "empty call with a comment": (
        f"{IMPORT}@triton_candidate(  # todo ) ,\n)\n{BODY}",
        f'{IMPORT}@triton_candidate(kernel="{KERNEL}"  # todo ) ,\n)\n{BODY}',
        "RMSNorm",
    ),
    "one line": (
        f"{IMPORT}@triton_candidate(inputs=make, init=(1024,))\n{BODY}",
        f'{IMPORT}@triton_candidate(inputs=make, init=(1024,), kernel="{KERNEL}")\n{BODY}',
        "RMSNorm",
    ),
    "one line, trailing comma": (
        f"{IMPORT}@triton_candidate(inputs=make,)\n{BODY}",
        f'{IMPORT}@triton_candidate(inputs=make, kernel="{KERNEL}",)\n{BODY}',
        "RMSNorm",
    ),
    "an argument a line, trailing comma and comments": (
        f"{IMPORT}@triton_candidate(\n    inputs=make,  # (a,\n    init=(1024,),  # b)\n    # c\n)\n{BODY}",
        f"{IMPORT}@triton_candidate(\n    inputs=make,  # (a,\n    init=(1024,),  # b)\n"
        f'    kernel="{KERNEL}",\n    # c\n)\n{BODY}',
        "RMSNorm",
    ),
    "an argument a line, no trailing comma": (
        f"{IMPORT}@triton_candidate(\n    inputs=make,\n    init=(1024,)  # b\n)\n{BODY}",
        f'{IMPORT}@triton_candidate(\n    inputs=make,\n    init=(1024,),  # b\n    kernel="{KERNEL}"\n)\n{BODY}',
        "RMSNorm",
    ),
    "aligned with the parenthesis": (
        f"{IMPORT}@triton_candidate(inputs=make,\n                  init=(1024,))\n{BODY}",
        f"{IMPORT}@triton_candidate(inputs=make,\n                  init=(1024,),\n"
        f'                  kernel="{KERNEL}")\n{BODY}',
        "RMSNorm",
    ),
    "all arguments on one inner line": (
        f"{IMPORT}@triton_candidate(\n    inputs=make, init=(1024,)  # b\n)\n{BODY}",
        f'{IMPORT}@triton_candidate(\n    inputs=make, init=(1024,), kernel="{KERNEL}"  # b\n)\n{BODY}',
        "RMSNorm",
    ),
    "a value in parentheses over lines": (
        f"{IMPORT}@triton_candidate(inputs=(\n    make\n))\n{BODY}",
        f'{IMPORT}@triton_candidate(inputs=(\n    make\n), kernel="{KERNEL}")\n{BODY}',
        "RMSNorm",
    ),
    "strings that look like code": (
        f'{IMPORT}@triton_candidate(inputs=lambda: f("),#", """\n)"""))\n{BODY}',
        f'{IMPORT}@triton_candidate(inputs=lambda: f("),#", """\n)"""), kernel="{KERNEL}")\n{BODY}',
        "RMSNorm",
    ),
    "a string continued with a backslash": (
        f"{IMPORT}@triton_candidate(inputs=f('a\\\n)'))\n{BODY}",
        f"{IMPORT}@triton_candidate(inputs=f('a\\\n)'), kernel=\"{KERNEL}\")\n{BODY}",
        "RMSNorm",
    ),
    "kernel replaced, quotes kept": (
        f"{IMPORT}@triton_candidate(kernel = 'pkg._triton.old' , init=())\n{BODY}",
        f"{IMPORT}@triton_candidate(kernel = '{KERNEL}' , init=())\n{BODY}",
        "RMSNorm",
    ),
    "kernel=None replaced": (
        f"{IMPORT}@triton_candidate(kernel=None)\n{BODY}",
        f'{IMPORT}@triton_candidate(kernel="{KERNEL}")\n{BODY}',
        "RMSNorm",
    ),
    "call statement": (
        f"{IMPORT}from m import RMSNorm\ntriton_candidate(RMSNorm, init=(8,)); x = 1\n",
        f'{IMPORT}from m import RMSNorm\ntriton_candidate(RMSNorm, init=(8,), kernel="{KERNEL}"); x = 1\n',
        "RMSNorm",
    ),
    "call statement on a dotted class, assigned": (
        f"{IMPORT}import m.n\nNorm = triton_candidate(\n\tm.n.RMSNorm,\n)\n",
        f'{IMPORT}import m.n\nNorm = triton_candidate(\n\tm.n.RMSNorm,\n\tkernel="{KERNEL}",\n)\n',
        "RMSNorm",
    ),
    "call in two steps": (
        f"{IMPORT}from m import RMSNorm\ntriton_candidate(init=(8,))(RMSNorm)\n",
        f'{IMPORT}from m import RMSNorm\ntriton_candidate(init=(8,), kernel="{KERNEL}")(RMSNorm)\n',
        "RMSNorm",
    ),
    "aliased function": (
        f"from pytest_kernelllm import triton_candidate as tc\n@tc\n{BODY}",
        f'from pytest_kernelllm import triton_candidate as tc\n@tc(kernel="{KERNEL}")\n{BODY}',
        "RMSNorm",
    ),
    "aliased module, among other decorators": (
        f"import pytest_kernelllm as pk\n@first\n@pk . triton_candidate\n@last(kernel=1)\n{BODY}",
        f'import pytest_kernelllm as pk\n@first\n@pk . triton_candidate(kernel="{KERNEL}")\n'
        f"@last(kernel=1)\n{BODY}",
        "RMSNorm",
    ),
    "nested class between twins": (
        f"{IMPORT}@triton_candidate\nclass A:\n\tpass\nclass Outer:\n\t@triton_candidate(\n\t\tinit=(),\n\t)\n"
        "\tclass A:\n\t\tpass\n",
        f"{IMPORT}@triton_candidate\nclass A:\n\tpass\nclass Outer:\n\t@triton_candidate(\n\t\tinit=(),\n"
        f'\t\tkernel="{KERNEL}",\n\t)\n\tclass A:\n\t\tpass\n',
        "Outer.A",
    ),
    "characters of many widths before it": (
        f"{IMPORT}é = '𝄞𝄞'; triton_candidate(Größe, inputs=lambda: '𝄞é')\nclass Größe: pass\n",
        f"{IMPORT}é = '𝄞𝄞'; triton_candidate(Größe, inputs=lambda: '𝄞é', kernel=\"{KERNEL}\")\n"
        "class Größe: pass\n",
        "Größe",
    ),
    "form feed and odd separators": (
        f"{IMPORT}\x0c\nx = '\x0b\x1c\u2028\x85'\n@triton_candidate(init=('\u2028',))\n{BODY}",
        f"{IMPORT}\x0c\nx = '\x0b\x1c\u2028\x85'\n@triton_candidate(init=('\u2028',), kernel=\"{KERNEL}\")\n{BODY}",
        "RMSNorm",
    ),
    "continued with a backslash": (
        f"{IMPORT}@triton_candidate(inputs=make, \\\n    init=())\n{BODY}",
        f'{IMPORT}@triton_candidate(inputs=make, \\\n    init=(),\n    kernel="{KERNEL}")\n{BODY}',
        "RMSNorm",
    ),
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
@pytest.mark.parametrize("case", SOURCES)
def test_only_the_argument_is_added(tmp_path: Path, case: str, ends: str) -> None:
    before, after, name = SOURCES[case]
    edited = adopt(tmp_path, before.replace("\n", ends).encode(), name)
    assert edited == after.replace("\n", ends).encode()
    ast.parse(edited)
    assert adopt(tmp_path, edited, name) == edited
    reverted = revert(tmp_path, edited, name)
    if "replaced" not in case:
        assert reverted == before.replace("\n", ends).encode()
    assert revert(tmp_path, reverted, name) == reverted


def test_byte_order_mark_coding_cookie_and_missing_last_line_end_stay(tmp_path: Path) -> None:
    source = f"{IMPORT}from m import RMSNorm\ntriton_candidate(RMSNorm)"
    wanted = f'{IMPORT}from m import RMSNorm\ntriton_candidate(RMSNorm, kernel="{KERNEL}")'
    assert adopt(tmp_path, b"\xef\xbb\xbf" + source.encode(), "RMSNorm") == b"\xef\xbb\xbf" + wanted.encode()
    cookie = "# -*- coding: latin-1 -*-\nx = 'é'; "
    source, wanted = cookie + source.replace("\n", ";", 1), cookie + wanted.replace("\n", ";", 1)
    assert adopt(tmp_path, source.encode("latin-1"), "RMSNorm") == wanted.encode("latin-1")


def test_the_marker_is_found_after_lines_moved(tmp_path: Path) -> None:
    before, after, name = SOURCES["one line"]
    target = Target("m.py", name, 2, "h", "decorator")
    assert (
        set_kernel(b"# new\n\n" + before.encode(), target, KERNEL, tmp_path) == b"# new\n\n" + after.encode()
    )


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
        (f"{IMPORT}@triton_candidate\n@triton_candidate\n{BODY}", "the class has 2 markers there"),
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

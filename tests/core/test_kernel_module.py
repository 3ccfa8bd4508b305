"""The digest in a kernel module's header: an edit of the program shows, another layout does not."""

import ast
import hashlib
import math
import re
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from kernelllm_judge.core.kernel_module import (
    DIGEST_LINE,
    Provenance,
    compose,
    digest,
    format_supports,
    read_supports,
    signed,
    stamped,
    unmodified,
    with_exemptions,
    with_figures,
    with_supports,
)
from kernelllm_judge.core.program import program_digest
from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_runtime.targets import domains

DOMAIN = Domain({"x": TensorSpec("float32", ("n", 64))}, {}, {"n": (1, 64)})
BODY = "@triton.jit\ndef a_kernel(x_ptr):\n    pass\n\n\ndef forward(self, x):\n    return x  # “as it is”\n"
TEXT = compose(Provenance("layers.py::Same", "0" * 64, "files"), "Same.", [DOMAIN], BODY)
CHECKOUTS = {"LF": TEXT.encode(), "CRLF": TEXT.replace("\n", "\r\n").encode()}


@pytest.mark.parametrize("ends", CHECKOUTS)
def test_what_was_generated_is_unmodified_under_both_line_ends(ends) -> None:
    assert unmodified(CHECKOUTS[ends])
    assert unmodified(CHECKOUTS[ends].decode())


def test_the_digest_is_that_of_the_provenance_and_the_program() -> None:
    lines = TEXT.splitlines()
    [stated] = [line for line in lines if line.startswith(DIGEST_LINE)]
    provenance = lines[:3]
    assert [line.partition(":")[0] for line in provenance[1:]] == ["# written by", "# source hash"]
    rest = "\n".join([*provenance, program_digest(TEXT)])
    assert stated.removeprefix(DIGEST_LINE) == hashlib.sha256(rest.encode()).hexdigest() == digest(TEXT)


@given(
    st.sampled_from(sorted(CHECKOUTS)),
    st.integers(0, len(CHECKOUTS["CRLF"]) - 1),
    st.sampled_from(["replaced", "inserted", "deleted"]),
    st.one_of(st.sampled_from(list(b"\r\n #0a\x00\xff")), st.integers(0, 255)),
)
def test_a_change_of_any_one_byte_that_changes_the_program_is_seen(ends, position, change, byte) -> None:
    content = CHECKOUTS[ends]
    assume(position < len(content))
    new = b"" if change == "deleted" else bytes([byte])
    edited = content[:position] + new + content[position + (change != "inserted") :]
    if unmodified(edited):
        assert run_as(edited) == run_as(content)
        lines = [line.rstrip() for line in edited.splitlines()]  # formatters remove what follows
        assert all(line in lines for line in content.splitlines()[:3])


def run_as(content: bytes) -> str:
    """The syntax tree as Python has it when it imports a file, without docstrings."""
    return re.sub(r"Expr\(value=Constant\(value='[^']*'\)\)(, )?", "", ast.dump(ast.parse(content)))


def test_every_character_of_the_digest_itself_counts() -> None:
    content = TEXT.encode()
    start = content.index(DIGEST_LINE.encode())
    for position in range(start, content.index(b"\n", start)):
        assert not unmodified(content[:position] + content[position + 1 :])


@pytest.mark.parametrize("line", TEXT.splitlines()[:3])
def test_the_provenance_counts(line) -> None:
    assert not unmodified(TEXT.replace(line, f"{line}x"))
    assert not unmodified(TEXT.replace(f"{line}\n", ""))
    assert not unmodified(f"{line}\n{TEXT}")
    assert unmodified(TEXT.replace(line, f"{line}  "))


def test_comments_of_others_do_not_count() -> None:
    licence = "# SPDX-License-Identifier: MIT\n"
    assert unmodified(licence + TEXT) and unmodified(TEXT + "# the end\n")
    assert not unmodified(TEXT.replace("# digest", f"{DIGEST_LINE}{'0' * 64}\n# digest"))


@pytest.mark.parametrize("line", ["# coding: latin-1\n", "\ufeff"])
def test_a_file_that_python_reads_in_another_encoding_is_modified(line) -> None:
    assert not unmodified(line + TEXT)


def test_a_file_without_a_digest_is_not_known_to_be_unmodified() -> None:
    assert not unmodified("".join(line for line in TEXT.splitlines(True) if DIGEST_LINE not in line))


def test_stamping_again_changes_nothing() -> None:
    assert stamped(TEXT) == TEXT
    assert stamped(TEXT.replace("\n", "\r\n")) == TEXT


def test_other_supports_get_a_digest_of_their_own() -> None:
    other = Domain({"x": TensorSpec("float32", ("n", 64))}, {}, {"n": (1, 8)})
    changed = with_supports(TEXT, [other])
    assert unmodified(changed) and read_supports(changed) == (other,)
    kept = [line for line in changed.splitlines() if not line.startswith((DIGEST_LINE, "SUPPORTS", "  "))]
    assert set(kept) <= set(TEXT.splitlines())


def test_carriage_returns_in_a_body_do_not_outlive_composing() -> None:
    text = compose(
        Provenance("a.py::A", "0", "files"), "A.\r\nB.", [DOMAIN], BODY.replace("\n", "\r\n") + "\r# end"
    )
    assert "\r" not in text and unmodified(text)


FIGURES = {
    "verified": "on NVIDIA H200",
    "error": "at most 3e-07",
    "speedup": "1.83x",
    "verify again": "pytest",
}
SHIPPED = with_figures(TEXT, FIGURES)


def test_figures_stand_below_the_digest_and_change_nothing_that_was_judged() -> None:
    lines, judged = SHIPPED.splitlines(keepends=True), TEXT.splitlines(keepends=True)
    at = next(i for i, line in enumerate(judged, 1) if line.startswith(DIGEST_LINE))
    assert lines == [*judged[:at], *(f"# {key}: {text}\n" for key, text in FIGURES.items()), *judged[at:]]
    for shipped in (SHIPPED, SHIPPED.replace("\n", "\r\n")):
        assert unmodified(shipped) and digest(shipped) == digest(TEXT)
    assert with_figures(SHIPPED, {}) == TEXT
    assert with_figures(SHIPPED, FIGURES) == SHIPPED


def test_a_long_figure_takes_several_lines() -> None:
    long = with_figures(TEXT, FIGURES | {"verified": "on " + "NVIDIA H200, " * 20})
    assert max(map(len, long.splitlines())) < 80 and "\n#   NVIDIA" in long
    assert unmodified(long) and with_figures(long, FIGURES) == SHIPPED


def test_figures_that_are_not_known_or_not_printable_are_left_out() -> None:
    some = with_figures(TEXT, {"verified": "on\rimport os", "error": "", "speedup": "2x", "other": "1"})
    assert [line for line in some.splitlines() if line not in TEXT.splitlines()] == ["# speedup: 2x"]


@given(st.integers(0, len(SHIPPED.encode()) - 1), st.sampled_from(list(b"\r\n\x0c\x00 #a\xff")))
def test_a_byte_among_figures_changes_nothing_but_comments(position, byte) -> None:
    content = SHIPPED.encode()
    edited = content[:position] + bytes([byte]) + content[position + 1 :]
    if unmodified(edited):
        assert run_as(edited) == run_as(TEXT.encode())
        assert program_digest(edited) == program_digest(TEXT)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("# error: ", "# error: 0\rimport os #"),
        lambda text: text.replace("# error: ", "import os  # error: "),
        lambda text: text.replace("# error: ", "# written by: "),
        lambda text: "# error: coding: utf-7\n" + text,
        lambda text: "# digest: " + text.partition("# digest: ")[2],
    ],
)
def test_what_is_no_figure_counts(change) -> None:
    assert unmodified(SHIPPED) and not unmodified(change(SHIPPED))


def test_a_figure_is_never_where_python_looks_for_an_encoding() -> None:
    alone = stamped("x = 1\n")
    assert unmodified(alone)
    digest, _, rest = alone.partition("\n")
    assert not unmodified(f"{digest}\n# verified: coding: utf-7\n{rest}")


def test_a_kernel_module_that_changes_loses_its_figures() -> None:
    other = Domain({"x": TensorSpec("float32", ("n", 64))}, {}, {"n": (1, 8)})
    assert with_supports(SHIPPED, [other]) == with_supports(TEXT, [other])
    assert stamped(SHIPPED) == TEXT


def test_exemptions_stand_at_the_end_of_the_header_and_replace_older_ones() -> None:
    exempt = with_exemptions(SHIPPED, ["F841", "E501"])
    assert unmodified(exempt) and '# verify again: pytest\n# ruff: noqa: E501, F841\n"""' in exempt
    assert with_exemptions(exempt, ["B007"]) == exempt.replace("E501, F841", "B007")
    assert with_exemptions(exempt, []) == SHIPPED


def test_what_ends_a_line_for_some_readers_only_is_not_written() -> None:
    body = BODY.replace("pass", "pass\x0c  # \u2028 \x85")
    text = compose(Provenance("a.py::A", "0", "files"), 'A "quote"', [DOMAIN], body)
    assert unmodified(text) and "\u2028" not in text
    module = with_supports(body + format_supports([DOMAIN]), [])
    assert unmodified(signed(module, Provenance("a.py::A", "0", "files")))


def test_imports_are_sorted_and_none_is_unused() -> None:
    body = "from triton import cdiv\nimport math, functools\nfrom __future__ import annotations\n"
    text = compose(Provenance("a.py::A", "0", "files"), "A.", [], f"{body}\n\nx: torch.Tensor = math.pi\n")
    _, _, rest = text.partition('"""A."""\n')
    assert rest.startswith(
        "\nfrom __future__ import annotations\n\nimport functools\nimport math\n\n"
        "import torch\nfrom triton import cdiv\n\nSUPPORTS = ()\n\n\nx: torch"
    )


def test_what_is_written_is_narrow() -> None:
    made_by = Provenance("layers.py::Same", "0" * 64, "inductor", licence_note="made by a compiler")
    text = compose(made_by, "Same by kernels.\n\n" + "default: x float32 (n, 64); " * 9, [], BODY)
    assert max(map(len, text.splitlines())) < 80


def test_infinities_and_nan_are_written_as_literals() -> None:
    values = {"high": math.inf, "low": -math.inf, "none": math.nan, "name": "inf", "value:x": "2.0"}
    domain = Domain({"x": TensorSpec("float32", (1,)), "limit": math.inf}, values)
    text = format_supports([domain])
    [read] = read_supports(text)
    assert read == domain
    assert {name: type(value) for name, value in read.attributes.items()} == {
        k: type(v) for k, v in values.items()
    }
    space: dict[str, Any] = {}
    exec(text, space)  # as a worker and an export read it
    assert space["SUPPORTS"][0]["attributes"]["low"] == -math.inf
    [shipped] = domains(space["SUPPORTS"])
    assert math.isnan(shipped.attributes["none"]) and shipped.inputs["limit"] == math.inf

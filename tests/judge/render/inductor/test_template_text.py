"""The kernels of templates, simplified."""

from __future__ import annotations

import ast

import pytest

from kernelllm_judge.render.inductor.template_text import without_rounding


def unrounded(*lines: str) -> list[str]:
    [function] = ast.parse("def kernel():\n    " + "\n    ".join(lines)).body
    assert isinstance(function, ast.FunctionDef)
    return [ast.unparse(statement) for statement in without_rounding(function).body]


def test_a_sum_is_not_rounded_before_it_is_added_to_a_bias() -> None:
    lines = [
        "tmp0 = acc.to(tl.bfloat16)",
        "tmp1 = tmp0.to(tl.float32) + bias",
        "tl.store(out_ptr, tmp1, mask)",
    ]
    assert unrounded(*lines) == ["tmp0 = acc", "tmp1 = tmp0 + bias", lines[2]]


def test_a_store_rounds_by_itself() -> None:
    lines = [
        "tmp0 = acc.to(tl.float16)",
        "tl.store(out_ptr, tmp0, mask)",
        "tl.store(other_ptr, tmp0 * 2, mask)",
    ]
    assert unrounded(*lines[:2]) == ["tmp0 = acc", lines[1]]
    assert unrounded(*lines) == lines


@pytest.mark.parametrize(
    "used", ["tmp0 + bias", "tmp0.to(tl.float32) + tmp0", "f(tmp0)", "tmp0.to(tl.float64)"]
)
def test_what_is_computed_with_a_rounded_sum_stays(used: str) -> None:
    lines = ["tmp0 = acc.to(tl.bfloat16)", f"tmp1 = {used}"]
    assert unrounded(*lines) == lines

"""Completions with small accidents in them: each gives a candidate or a reason, and the renderer itself never fails."""

from __future__ import annotations

import random

import pytest
from completions import DATA, TABLE, live_target
from mutations import mutated
from rendering import constructors

from kernelllm_judge.core.records import Completion
from kernelllm_judge.render.render import RenderError, render
from kernelllm_judge.static_check.static_check import find_violations

TEXTS = {name: (DATA / "completions" / f"{name}.txt").read_bytes().decode() for name in TABLE}


def reason(name: str, text: str) -> str:
    """Why a text is refused; empty for a candidate that Python and the static check can read."""
    try:
        source = render(
            Completion("files", 0, text, "modelnew"), live_target(TABLE[name].target), constructors()
        ).source
    except RenderError as error:
        return str(error)
    find_violations(source)
    return ""


@pytest.mark.parametrize("name", TABLE)
def test_an_accident_in_a_completion_is_no_failure_of_the_renderer(name: str) -> None:
    dice = random.Random(f"accidents in {name}")
    reasons = {text: reason(name, text) for text in (mutated(TEXTS[name], dice) for _ in range(6))}
    assert {why: text for text, why in reasons.items() if "please report it" in why} == {}


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        (
            "dialect_sequential",
            "reinterpret_tensor(buf0, (4, 4, 4, 4), (64,",
            "reinterpret_tensor(buf0, (4, 4, 4, 4)(64,",
            "is not reinterpret_tensor(tensor, shape, strides, offset).",
        ),
        (
            "dialect_matmul_missing",
            "reinterpret_tensor(buf0, (4, 4, 4, 4), (64, 16, 4, 1)",
            "reinterpret_tensor(buf0, (4, 4, 4, 4), (64, 16, 4)",
            "is not reinterpret_tensor(tensor, shape, strides, offset).",
        ),
        ("dialect_device_index", "(4, 4, 4, 4), (64,", "(4, 4, 4, 4)(64,", "is not understood."),
        (
            "dialect_linear_relu",
            "return output[0]",
            "return output[3]",
            "ModelNew returns result 3 of `call`, which returns 3.",
        ),
    ],
)
def test_what_once_failed_has_a_reason(name: str, old: str, new: str, expected: str) -> None:
    assert old in TEXTS[name]
    assert reason(name, TEXTS[name].replace(old, new)).endswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = " + "-" * 100_000 + "1\n", "nested too deeply"),
        ("x = " + "not " * 20_000 + "1\n", "nested too deeply"),
        ("x = '\ud800'\n", "is not Unicode"),
    ],
)
def test_text_that_python_cannot_read_has_a_reason(text: str, expected: str) -> None:
    with pytest.raises(RenderError, match=expected):
        render(Completion("inductor", 0, text, "inductor"), live_target(TABLE["hand_add"].target))

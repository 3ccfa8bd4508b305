"""Whatever the renderer writes from honest text passes the judge's screen."""

from __future__ import annotations

import pytest
from fusing import from_inductor, from_text
from rendering import rendered
from test_dialect import SOUND, WRONG
from test_inductor import TARGETS
from test_modelnew import ANSWERS, answer

from pytest_kernelllm.judge.screen.screen import screen

DIALECT = {**SOUND, **WRONG}


@pytest.mark.parametrize("name", ANSWERS)
def test_rendered_hand_style_answers_pass_the_screen(name: str) -> None:
    assert screen(rendered(ANSWERS[name], answer(name)).source) == []


@pytest.mark.parametrize("name", DIALECT)
def test_rendered_answers_in_inductors_dialect_pass_the_screen(name: str) -> None:
    assert screen(from_text(DIALECT[name], name).source) == []


@pytest.mark.parametrize("name", TARGETS)
def test_what_inductor_writes_today_passes_the_screen(name: str) -> None:
    assert screen(from_inductor(name).source) == []

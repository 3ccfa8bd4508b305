"""Every stored completion is rendered and judged for real, in Triton's interpreter."""

from __future__ import annotations

import pytest
from completions import DATA, TABLE, check, decide

from kernelllm_judge.judging import Judge


@pytest.mark.parametrize("name", TABLE)
def test_what_becomes_of_a_completion(judge: Judge, name: str) -> None:
    check(name, decide(judge, name))


def test_no_stored_completion_is_forgotten() -> None:
    assert {path.stem for path in (DATA / "completions").glob("*.txt")} == set(TABLE)


def test_both_styles_are_there_sound_and_broken() -> None:
    for style in ("dialect", "hand"):
        sound = [not expected.rule for name, expected in TABLE.items() if name.startswith(style)]
        assert sum(sound) >= 10
        assert len(sound) - sum(sound) >= 5

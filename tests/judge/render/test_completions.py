"""Every stored completion is rendered and judged for real, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from completions import DATA, TABLE, check, completion_judge


@pytest.fixture(scope="module")
def decide() -> Iterator[Callable]:
    with completion_judge("cpu") as decide:
        yield decide


@pytest.mark.parametrize("name", TABLE)
def test_what_becomes_of_a_completion(decide: Callable, name: str) -> None:
    check(name, decide(name))


def test_no_stored_completion_is_forgotten() -> None:
    assert {path.stem for path in (DATA / "completions").glob("*.txt")} == set(TABLE)


def test_both_styles_are_there_sound_and_broken() -> None:
    for style in ("dialect", "hand"):
        sound = [not expected.rule for name, expected in TABLE.items() if name.startswith(style)]
        assert sum(sound) >= 10
        assert len(sound) - sum(sound) >= 5

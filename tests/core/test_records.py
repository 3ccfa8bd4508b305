"""What a verdict says of itself."""

import pytest

from pytest_kernelllm.core.records import Environment, Verdict


@pytest.mark.parametrize(
    ("verdict", "stage", "rule", "correct"),
    [
        ("accepted", "timing", "", True),
        ("accepted", "correctness", "", True),
        ("rejected", "timing", "speed", True),
        ("rejected", "timing", "clocks", False),
        ("rejected", "timing", "device time", False),
        ("rejected", "correctness", "values", False),
        ("inconclusive", "timing", "", False),
    ],
)
def test_a_kernel_is_right_unless_something_but_its_speed_is_against_it(verdict, stage, rule, correct):
    said = Verdict(verdict, stage, "", "0" * 64, Environment("cuda"), rule=rule)
    assert said.correct is correct

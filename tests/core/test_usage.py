"""How busy slots were."""

import pytest

from kernelllm_judge.core.spans import JUDGING, Span
from pytest_kernelllm.core.usage import Usage


def judged(*times, what=JUDGING):
    return [Span("judge", "MainThread", what, "a.py::A", *each) for each in times]


def test_the_share_is_of_all_slots_from_the_first_verdict_to_the_last():
    others = judged((90.0, 120.0), what="calls")
    usage = Usage.of(2, [*judged((100.0, 104.0), (101.0, 102.0), (108.0, 110.0)), *others])
    assert usage == Usage(2, 10.0, 7.0, 0.35)
    assert str(usage) == "2 slots were judging 35 % of the 10 s from the first verdict to the last."


@pytest.mark.parametrize("spans", [[(5.0, 5.0)], [(1.0, 2.0), (1.0, 2.0)]])
def test_the_share_is_never_above_one(spans):
    assert 0 <= Usage.of(1, judged(*spans)).busy_share <= 1


def test_nothing_was_busy_where_everything_was_known():
    assert Usage.of(0, judged((1.0, 2.0), what="loading")) is None

"""The seconds of a verdict by part."""

import time

import pytest

from kernelllm_judge.findings import Durations


@pytest.fixture
def clock(monkeypatch):
    """A clock that is moved by hand, with ``clock.append(seconds)``."""
    moved = []
    monkeypatch.setattr(time, "perf_counter", lambda: sum(moved))
    return moved


def test_time_inside_a_part_counts_once(clock):
    durations = Durations()
    with durations.part("whole"):
        clock.append(1)
        with durations.part("inner"):
            clock.append(4)
        with durations.part("inner"):
            clock.append(2)
            with durations.part("innermost"):
                clock.append(8)
        clock.append(0.5)
    assert durations.rounded() == {"innermost": 8, "inner": 6, "whole": 1.5}


def test_a_part_that_fails_counts(clock):
    durations = Durations()
    with pytest.raises(ValueError, match="x"), durations.part("broken"):
        clock.append(3)
        raise ValueError("x")
    with durations.part("next"):
        clock.append(1)
    assert durations.rounded() == {"broken": 3, "next": 1}


def test_seconds_that_were_measured_elsewhere_count(clock):
    durations = Durations()
    durations.add("waiting", 1.5)
    durations.add("waiting", 0.25)
    assert durations.rounded() == {"waiting": 1.75}

"""The time left of a long run."""

from pytest_kernelllm.report.progress import Pace


class Clock:
    """Shows the time that a test sets."""

    now = 100.0

    def __call__(self):
        return self.now


def run(pace, clock, *targets):
    for seconds, worked in targets:
        clock.now += seconds
        pace.finish(worked)
    return str(pace)


def test_the_time_left_follows_from_the_targets_that_took_work():
    clock = Clock()
    pace = Pace(250, clock)
    assert str(pace) == "0 of 250"
    # What the store knew comes at once, and would make the rest seem as quick.
    assert run(pace, clock, *[(0.01, False)] * 100) == "100 of 250"
    assert run(pace, clock, (2, True)) == "101 of 250, about 5 min left"
    assert run(pace, clock, (4, True)) == "102 of 250, about 7 min left"
    assert run(pace, clock, (60, True)) == "103 of 250, about 54 min left"


def test_seconds_and_hours_are_rounded_and_the_end_has_none():
    clock = Clock()
    assert run(Pace(3, clock), clock, (14, True), (14, True)) == "2 of 3, about 10 s left"
    assert run(Pace(101, clock), clock, (144, True)) == "1 of 101, about 4.0 h left"
    assert run(Pace(1, clock), clock, (14, True)) == "1 of 1"

"""Working ahead."""

import threading

import pytest
from waiting import wait_until

from pytest_kernelllm.session.ahead import Ahead, Pace


class Works:
    """Works that wait until they are let go."""

    def __init__(self, most):
        self.begun = []
        self.doors = {name: threading.Event() for name in "abcdef"}
        self.ahead = Ahead(self.work, lambda: most)
        for name in "abcdef":
            self.ahead.expect(name)

    def work(self, name):
        self.begun.append(name)
        self.doors[name].wait()
        if name == "c":
            raise ValueError("c fails")

    def wait_for(self, name):
        self.doors[name].set()
        self.ahead.wait_for(name)


@pytest.mark.parametrize(("most", "begun"), [(0, "a"), (1, "ab"), (2, "abc")])
def test_only_so_many_are_begun_ahead(most, begun):
    works = Works(most)
    works.wait_for("a")
    wait_until(lambda: len(works.begun) >= len(begun))
    assert works.begun == list(begun)


def test_each_is_done_once_and_fails_where_it_is_asked_for():
    works = Works(2)
    for door in works.doors.values():
        door.set()
    for name in "ab":
        works.wait_for(name)
    for _ in range(2):
        with pytest.raises(ValueError, match="c fails"):
            works.wait_for("c")
    for name in "def":
        works.wait_for(name)
    works.ahead.join(10)
    assert sorted(works.begun) == list("abcdef")


def test_what_is_asked_for_out_of_turn_is_begun_first():
    works = Works(1)
    works.wait_for("e")
    wait_until(lambda: len(works.begun) == 2)
    assert works.begun == ["e", "a"]


def test_works_are_returned_once_when_they_end_and_others_are_begun_meanwhile():
    works = Works(1)
    assert works.ahead.ended(0.0) == []
    wait_until(lambda: len(works.begun) == 2)
    works.doors["b"].set()
    assert works.ahead.ended(60.0) == ["b"]
    assert works.ahead.ended(0.0) == []
    wait_until(lambda: works.begun == ["a", "b", "c"])  # though `a` is still at work
    for door in works.doors.values():
        door.set()
    ended = []
    while (some := works.ahead.ended(60.0)) is not None:
        ended += some
    assert sorted(ended) == ["a", "c", "d", "e", "f"]  # also the one that failed
    with pytest.raises(ValueError, match="c fails"):
        works.ahead.wait_for("c")


def test_the_pace_counts_what_is_done_under_way_and_waiting():
    works = Works(1)
    works.wait_for("a")
    wait_until(lambda: works.begun == ["a", "b"])
    pace = works.ahead.pace(lambda name: True)
    assert (len(pace.done), len(pace.begun), pace.waiting) == (1, 1, 4)
    assert not works.ahead.pace(lambda name: name == "b").done  # `a` was known, say


COLD = ((0.0, 20.0), (0.0, 22.0))
LEFT = {
    "nothing is done": (Pace((), (0.0, 0.0), 3, 5.0), None),
    "none found it warm": (Pace(COLD, (20.0,), 3, 23.0), None),
    "nothing waits": (Pace(COLD[:1], (0.0,), 0, 21.0), 5.0),
    "two at a time": (Pace((*COLD, (20.0, 24.0)), (22.0,), 3, 24.0), (2.0 + 3 * 4.0) / 2),
    "one at a time": (Pace(((0.0, 10.0), (10.0, 12.0), (12.0, 15.0)), (15.0,), 2, 16.0), 2.0 + 2 * 3.0),
    "the last one": (Pace((*COLD, (20.0, 24.0)), (22.0,), 0, 25.0), 1.0),
}


@pytest.mark.parametrize("case", LEFT)
def test_the_time_left(case):
    pace, seconds = LEFT[case]
    assert pace.seconds_left == (None if seconds is None else pytest.approx(seconds, rel=0.1))

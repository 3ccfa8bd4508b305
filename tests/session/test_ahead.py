"""Working ahead."""

import threading

import pytest
from waiting import wait_until

from pytest_kernelllm.session.ahead import Ahead


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

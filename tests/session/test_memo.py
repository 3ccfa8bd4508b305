"""Known? Else made, else kept: the one memo of the three stages."""

import threading

import pytest

from pytest_kernelllm.session.memo import Memo


class Kept(dict):
    """A part of a store."""

    def put(self, key, value):
        self[key] = value


def never():
    raise AssertionError("it is known")


def test_what_is_made_is_kept_and_not_made_again():
    kept = Kept()
    assert Memo(kept).get("a", lambda: 1) == 1
    memo = Memo(kept)
    assert (memo.known("a"), memo.get("a", never), memo.known("b")) == (1, 1, None)


def test_what_does_not_last_is_known_in_this_session_only():
    kept = Kept()
    memo = Memo(kept, lasts=lambda value: value > 1)
    assert [memo.get(key, lambda key=key: key) for key in (1, 2)] == [1, 2]
    assert memo.get(1, never) == 1 and kept == {2: 2}


def test_what_does_not_answer_is_made_again():
    kept = Kept(a=1)
    memo = Memo(kept, answers=lambda value: value > 1)
    assert memo.known("a") is None
    assert memo.get("a", lambda: 0) == 0 and memo.get("a", never) == 0
    assert kept == {"a": 0}


def test_who_waits_for_the_lock_takes_what_was_made_meanwhile():
    kept, lock, made = Kept(), threading.Lock(), []

    def make():
        made.append(1)
        return 1

    threads = [threading.Thread(target=lambda: Memo(kept).get("a", make, lock)) for _ in range(8)]
    with lock:
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_an_error_keeps_nothing():
    memo = Memo(Kept())
    with pytest.raises(AssertionError):
        memo.get("a", never)
    assert memo.known("a") is None

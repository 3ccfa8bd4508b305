"""What is known: values of this session, and behind them those of the store."""

from pytest_kernelllm.session.known import Memo


class Kept(dict):
    """A part of a store."""

    def put(self, key, value):
        self[key] = value


def test_what_is_made_is_kept_and_known_to_the_next_session():
    kept = Kept()
    assert Memo(kept).keep("a", 1) == 1
    memo = Memo(kept)
    assert (memo.known("a"), memo.known("b")) == (1, None)


def test_what_does_not_last_is_known_in_this_session_only():
    kept = Kept()
    memo = Memo(kept, lasts=lambda value: value > 1)
    assert [memo.keep(key, key) for key in (1, 2)] == [1, 2]
    assert memo.known(1) == 1 and kept == {2: 2}


def test_a_stored_value_may_not_answer_and_one_made_now_does():
    kept = Kept(a=1)
    memo = Memo(kept)
    assert memo.known("a", lambda value: value > 1) is None
    memo.keep("a", 0)
    assert memo.known("a", lambda value: value > 1) == 0 and kept == {"a": 0}

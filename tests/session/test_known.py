"""What is known: values of this session, and behind them those of the store."""

from kernelllm_judge.core.records import LACKS, Candidate, Check, Environment, KernelRecord, Verdict
from pytest_kernelllm.session.known import Known, Memo
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.verdicts import VerdictKey

CPU, GPU = Environment("cpu", arch="sm_90"), Environment("cuda", gpu="NVIDIA H200", arch="sm_90")


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


def undecided(*checks):
    candidate = Candidate("m.py::M", "x = 1\n", "files")
    verdict = Verdict("inconclusive", "correctness", "why", candidate.kernel_hash, CPU, checks=checks)
    return KernelRecord("m.py::M", "a" * 64, candidate, verdict, "2026-11-28T00:00:00Z")


def test_an_undecided_verdict_is_kept_under_what_it_lacks_and_given_again_where_that_is_there(tmp_path):
    record = undecided(Check(LACKS, True, None, None, "a GPU"))
    key = VerdictKey.of(record)
    Known(Store(tmp_path)).verdicts.keep(key, record)
    later = Known(Store(tmp_path)).verdicts
    assert later.known(key) == record
    assert later.known(VerdictKey(key.source_hash, key.kernel_hash, GPU)) is None


def test_a_verdict_that_is_undecided_for_a_passing_reason_is_not_kept(tmp_path):
    record = undecided()
    Known(Store(tmp_path)).verdicts.keep(VerdictKey.of(record), record)
    assert Known(Store(tmp_path)).verdicts.known(VerdictKey.of(record)) is None

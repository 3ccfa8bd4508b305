"""Adopted kernels beside recorded runs: like with like, and noise is no regression."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from contexts import context
from recorded import run_of, timing, verdict

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import ADOPTED, Candidate, Environment, Ratio, Target
from pytest_kernelllm.core.history import changes, ratio_of
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.session.history import Histories
from pytest_kernelllm.store import Store

OLD = Environment("cuda", "NVIDIA H200", "570.86", "sm_90", "2.11.0", "3.5.0", "3.12", "7")
NEW = replace(OLD, torch="2.13.0", triton="3.7.1")
TARGET = Target("layers.py", "Scale", 1, "a" * 64, "call", kernel="scale_kernel")
KERNEL = Candidate(TARGET.id, "x = 1\n", "adopted")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, environ={})


def histories(store: Store, environment: Environment = NEW, inputs: str = "", **settings) -> Histories:
    return Histories(context(store.path.parent, environment, inputs, store, **settings))


def now(*timings, environment=NEW, kernel=KERNEL):
    return verdict(kernel, environment, *timings)


def before(store, identity, *timings, environment=OLD, **more):
    run = run_of(TARGET, now(*timings, environment=environment), identity, **more)
    assert store.runs.put(run)
    return run


def outcome(history, found) -> Outcome:
    return Outcome(TARGET, ADOPTED, KERNEL, found, history=history)


def test_a_loss_counts_only_where_the_interval_excludes_noise():
    def slower(then, today, noise, allowed):
        [change] = changes([timing(then, noise=noise)], [timing(today, noise=noise)], allowed)
        return change.slower

    assert slower(1.31, 1.12, 0.01, 0.10)
    assert not slower(1.31, 1.12, 0.05, 0.10), "the intervals allow for less than 10 %"
    assert not slower(1.31, 1.19, 0.01, 0.10)
    assert slower(1.31, 1.19, 0.01, 0.05)
    assert not slower(1.12, 1.31, 0.01, 0.0)
    assert not slower(1.31, 1.31, 0.0, 0.0)


def test_intervals_add_in_quadrature():
    change = ratio_of(Ratio(1.0, 0.97, 1.03), Ratio(2.0, 1.92, 2.08))
    assert change.value == 0.5
    assert change.low == pytest.approx(0.475, abs=0.001) and change.high == pytest.approx(0.5255, abs=0.001)


def test_numbers_that_cannot_be_compared_are_left_out():
    broken = replace(timing(1.3), speedup=Ratio(1.3, 0.0, float("inf")))
    assert changes([broken], [timing(1.3)], 0.1) == changes([timing(1.3)], [broken], 0.1) == ()
    assert changes([timing(1.3, case="small")], [timing(1.3, case="large")], 0.1) == ()
    assert changes([timing(1.3)], [replace(timing(1.0), bytes=1)], 0.1) == ()


def test_the_sentence_says_what_became_slower_and_what_is_new(store):
    before(store, "20261101-120000-aaaa", timing(1.31, case="small"), timing(1.5, case="large"))
    history = histories(store).of(TARGET, now(timing(1.12, case="small"), timing(1.5, case="large")))
    assert history.slower
    assert history.note == (
        "slower than recorded: 1.31x -> 1.12x in case small since torch 2.11.0 -> 2.13.0, triton 3.5.0 -> 3.7.1; "
        "the kernel takes 10 -> 10 µs, eager 13.1 -> 11.2 µs (run 20261101-120000-aaaa)"
    )
    assert [point.run for point in history.points] == ["20261101-120000-aaaa", ""]
    assert history.points[-1].slower and history.points[0].speedup.value == pytest.approx(1.402, abs=0.001)


def test_another_kernel_is_compared_and_named(store):
    before(store, "20261101-120000-aaaa", timing(1.5))
    edited = Candidate(TARGET.id, "x = 2\n", "adopted")
    found = now(timing(1.1), environment=OLD, kernel=edited)
    note = histories(store, OLD).of(TARGET, found).note
    assert f"since kernel {KERNEL.kernel_hash[:12]} -> {edited.kernel_hash[:12]}" in note


def test_nothing_recorded_is_nothing_to_say(store):
    history = histories(store).of(TARGET, now(timing(1.1)))
    assert history.note == "" and history.comparison is None and len(history.points) == 1
    assert not store.path.exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"environment": replace(OLD, gpu="NVIDIA H100")}, "no recorded run on this GPU, NVIDIA H100"),
        ({"timings": ()}, "there is no GPU, so not compared with the recorded 1.50x on NVIDIA H200"),
        ({"timings": (), "timing": False}, "timing is off, so not compared"),
        ({"inputs": "b" * 16}, "the module or its inputs have changed"),
        ({"source_hash": "b" * 64}, "the module or its inputs have changed"),
        ({"timings": (timing(1.5, case="other"),)}, "has no case of these sizes"),
    ],
)
def test_what_is_not_alike_is_not_compared(store, change, sentence):
    before(store, "20261101-120000-aaaa", timing(1.5))
    target = replace(TARGET, source_hash=change.get("source_hash", TARGET.source_hash))
    found = now(*change.get("timings", (timing(1.0),)), environment=change.get("environment", NEW))
    known = histories(store, inputs=change.get("inputs", ""), timing=change.get("timing", True))
    history = known.of(target, found)
    assert sentence in history.note
    assert history.comparison is None and not history.slower


def test_a_slower_run_is_no_reference_until_it_is_named(store):
    before(store, "20201101-120000-aaaa", timing(1.5))
    found = now(timing(1.1))
    for _ in range(3):  # it stays slower, however often it runs
        known = histories(store)
        history = known.of(TARGET, found)
        assert history.slower
        known.record([outcome(history, found)])
    assert [run.kernels[0].slower for run in store.runs] == [False, True]
    named = known.record([outcome(history, found)], "torch-2.13")
    assert named is not None and named.kernels[0].slower
    accepted = histories(store).of(TARGET, found)
    assert not accepted.slower and accepted.comparison.name == "torch-2.13"


def test_a_run_is_chosen_by_name_or_id(store):
    before(store, "20261101-120000-aaaa", timing(2.0), name="release")
    before(store, "20261102-120000-bbbb", timing(1.2))
    found = now(timing(1.2))
    assert not histories(store).of(TARGET, found).slower
    for chosen in ("release", "20261101"):
        known = histories(store, compare=chosen)
        known.check()
        assert known.of(TARGET, found).slower
    for wrong, count in (("nightly", "no"), ("202611", "2")):
        with pytest.raises(SessionError, match=rf"`compare` is '{wrong}', but {count} recorded runs"):
            histories(store, compare=wrong).check()
    other = replace(TARGET, name="Other")
    assert (
        "run release has no time of this module" in histories(store, compare="release").of(other, found).note
    )


def test_off_neither_compares_nor_records_without_a_name(store):
    before(store, "20261101-120000-aaaa", timing(2.0))
    known, found = histories(store, compare="off"), now(timing(1.2))
    history = known.of(TARGET, found)
    assert history.note == "" and history.points == () and not history.slower
    assert known.record([outcome(history, found)]) is None
    accepted = known.record([outcome(history, found)], "accepted")
    assert accepted is not None and not accepted.kernels[0].slower
    assert not histories(store).of(TARGET, found).slower


def test_only_what_is_new_is_recorded(store):
    known, found = histories(store), now(timing(1.5))
    first = known.record([outcome(known.of(TARGET, found), found)])
    assert first is not None and list(store.runs) == [first]
    again = histories(store)
    history = again.of(TARGET, found)
    assert [point.run for point in history.points] == [first.id]
    assert again.record([outcome(history, found)]) is None
    inconclusive = replace(found, verdict="inconclusive", reason="the machine went away")
    assert again.record([outcome(again.of(TARGET, inconclusive), inconclusive)]) is None


def test_a_kernel_that_an_upgrade_made_wrong_says_so_without_a_gpu_too(store):
    cpu = Environment("cpu", torch="2.11.0", triton="3.7.1")
    assert store.runs.put(run_of(TARGET, now(environment=cpu), "20261101-120000-aaaa"))
    after = replace(cpu, torch="2.13.0")
    wrong = replace(now(environment=after), verdict="rejected", rule="numerics", reason="is wrong at")
    history = histories(store, after).of(TARGET, wrong)
    assert (
        history.note == "it was right in run 20261101-120000-aaaa; since then changed: torch 2.11.0 -> 2.13.0"
    )
    assert not history.points[-1].correct


def test_many_writers_lose_nothing(store):
    found = now(timing(1.5))
    history = histories(store).of(TARGET, found)
    threads = [
        threading.Thread(target=lambda: histories(store).record([outcome(history, found)], "n"))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(store.runs)) == 8 and store.problems == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / ".kernelllm").write_text("a file, not a folder")
    store = Store(tmp_path, environ={})
    known, found = histories(store), now(timing(1.5))
    assert known.record([outcome(known.of(TARGET, found), found)]) is None
    assert len(store.problems) == 1 and "not remembered" in store.problems[0]


def test_a_damaged_run_counts_as_missing(store):
    before(store, "20261101-120000-aaaa", timing(2.0))
    before(store, "20261102-120000-bbbb", timing(1.9))
    [path] = store.path.glob("runs/*bbbb*")
    path.write_bytes(path.read_bytes()[:100])
    history = histories(store).of(TARGET, now(timing(1.0)))
    assert history.comparison is not None and history.comparison.run == "20261101-120000-aaaa"
    assert len(store.problems) == 1 and "damaged" in store.problems[0]


def test_gc_bounds_the_history_and_keeps_what_later_runs_are_compared_with(store, monkeypatch):
    monkeypatch.setattr("pytest_kernelllm.store.runs.KEPT", 2)
    before(store, "20261101-000000-aaaa", timing(1.9), name="release")
    before(store, "20261102-000000-aaaa", timing(1.9))
    before(store, "20261103-000000-aaaa", timing(1.9))
    for day in (4, 5, 6):
        before(store, f"2026110{day}-000000-aaaa", timing(1.2), slower=True)
    store.gc([TARGET.source_hash])
    assert [run.id[6:8] for run in store.runs] == ["01", "03", "05", "06"]
    store.gc(["c" * 64])
    assert list(store.runs) == []


def test_entries_are_json_of_the_stores_form(store):
    before(store, "20261101-120000-aaaa", timing(2.0))
    [path] = store.path.glob("runs/*.json")
    entry = json.loads(path.read_text())
    assert entry["kind"] == "run" and entry["body"]["kernels"][0]["timing"][0]["case"] == "default"

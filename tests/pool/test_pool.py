"""The pool, with real processes that do simple jobs."""

import math
import os
import queue
import signal
import threading
from collections import Counter

import pytest
from waiting import wait_until

from pytest_kernelllm.pool import pool_process
from pytest_kernelllm.pool.hosts import Hosts
from pytest_kernelllm.pool.job_queue import JobQueue
from pytest_kernelllm.pool.jobs import Engine, PoolFailed, PoolJob, ProcessLost, Task, kept_after
from pytest_kernelllm.pool.pool_process import Slot, StageOverdue
from pytest_kernelllm.pool.process_slot import ProcessSlot

WORKER = """
import ctypes, os, pathlib, signal, socket, sys, threading
from kernelllm_judge.shared.channel import Channel

def main(_, descriptors):
    channel = Channel(socket.socket(fileno=descriptors[0]))
    handshake = channel.receive()
    place = os.environ["PLACE"]
    burnt = pathlib.Path(handshake.get("burnt", "")) / place
    if handshake.get("broken") or burnt.is_file():
        sys.exit("the GPU is on fire")


    def stage(name, seconds, thread=1):
        channel.send({"stage": name, "thread": thread})
        threading.Event().wait(seconds)


    channel.send({"ready": True})
    group, done = None, 0
    while True:
        request = channel.receive()
        done += 1
        match request["do"]:
            case "exit":
                os._exit(3)
            case "crash":
                ctypes.string_at(0)
            case "kill once":
                if not os.path.exists(request["at"]):
                    open(request["at"], "w").close()
                    os.kill(os.getpid(), request["signal"])
            case "burn":
                if place == "0":
                    burnt.touch()
                    os._exit(3)
            case "parts":
                channel.send({"part": {"n": 1}})
                while not os.path.exists(request["at"]):
                    threading.Event().wait(0.01)
            case "meet":
                (pathlib.Path(request["at"]) / place).touch()
                while len(os.listdir(request["at"])) < 2:
                    threading.Event().wait(0.01)
            case "stages":
                for _ in range(7):
                    stage("one of seven", 0.2)
                stage("", 1.3)
            case "two threads":
                stage("the other thread", 0, thread=2)
                stage("this thread", 0)
                stage("", None)
            case "hang":
                if request["deaf"]:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                (open(request["at"], "w")).close()
                threading.Event().wait()
            case "once" if group not in (None, request["group"]):
                channel.send({"unfit": True})
                sys.exit()
        group = request.get("group")
        channel.send({"pid": os.getpid(), "place": place, "handshake": handshake, "done": done})
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    (tmp_path / "simple_worker.py").write_text(WORKER)
    monkeypatch.syspath_prepend(str(tmp_path))

    def start(count=1, seconds=math.inf, **handshake):
        slots = [Slot({"n": n, **handshake}, {"PLACE": str(n)}) for n in range(count)]
        hosts = Hosts(("simple_worker",))
        return Engine([ProcessSlot("simple_worker", slot, hosts, seconds) for slot in slots], hosts=hosts)

    return start


def jobs(*requests, group="g", **fields):
    return [PoolJob(str(n), group, {"do": do, **fields}) for n, do in enumerate(requests)]


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_parts_of_a_reply_come_before_it(start, tmp_path):
    parts = queue.SimpleQueue()
    with start() as pool:
        reply = pool.submit(PoolJob("0", "g", {"do": "parts", "at": str(tmp_path / "on")}, parts))
        assert parts.get(timeout=60) == {"n": 1}
        (tmp_path / "on").touch()
        assert reply.result(60)["done"] == 1


def test_slots_are_started_before_there_is_something_to_do(start):
    with start(3) as pool:
        pool.warm(2)
        wait_until(lambda: sum(slot.starts for slot in pool._slots) == 2)
        places = {answer["place"] for _, answer in pool.run(jobs("work", "work"))}
    assert places <= {"0", "1"}
    pool.warm(1)  # after the end nothing starts
    assert sum(slot.starts for slot in pool._slots) == 2


def test_every_job_is_done_once_and_in_its_slot(start):
    wanted = [PoolJob(str(n), str(n % 5), {"do": "work"}) for n in range(40)]
    with start(3) as pool:
        done = list(pool.run(wanted))
    assert Counter(job.name for job, _ in done) == Counter(job.name for job in wanted)
    assert all(answer["handshake"] == {"n": int(answer["place"])} for _, answer in done)
    assert all(gone(answer["pid"]) for _, answer in done)


def test_a_limit_holds_while_another_slot_takes_over(start, tmp_path):
    """The first slot breaks with the first job, which the second one does, and everything after it."""
    hosts = Hosts(("simple_worker",))
    slots = [
        ProcessSlot("simple_worker", Slot({"burnt": str(tmp_path)}, {"PLACE": str(n)}), hosts)
        for n in range(3)
    ]
    wanted = [PoolJob(str(n), str(n), {"do": "burn"}) for n in range(6)]
    with Engine(slots, 1, hosts) as pool:
        assert pool.slots == 1
        done = list(pool.run(wanted))
    assert [answer["place"] for _, answer in done] == ["1"] * 6


@pytest.mark.parametrize(
    ("do", "words"), [("exit", "it exited with status 3"), ("crash", "it was killed by SIGSEGV")]
)
def test_a_process_that_dies_costs_the_job_it_held(start, do, words):
    with start() as pool:
        done = {job.name: answer for job, answer in pool.run(jobs("work", do, "work", "work"))}
    assert isinstance(done["1"], ProcessLost)
    assert str(done["1"]) == f"{words}; a fresh one: {words}"
    assert done["0"]["pid"] != done["2"]["pid"] == done["3"]["pid"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGRTMIN + 3])
def test_the_job_of_a_process_that_dies_is_the_first_of_a_fresh_one(start, tmp_path, number):
    wanted = jobs("work", "kill once", "work", at=str(tmp_path / "killed"), signal=number)
    with start() as pool:
        done = {job.name: answer for job, answer in pool.run(wanted)}
    assert [done[name]["done"] for name in "012"] == [1, 1, 2]
    assert done["0"]["pid"] != done["1"]["pid"] == done["2"]["pid"]


def test_a_slot_that_cannot_start_any_more_leaves_its_job_to_others(start, tmp_path):
    # The other slot has perhaps found nothing to do by then, and has ended its process.
    with start(2, burnt=str(tmp_path)) as pool:
        done = list(pool.run(jobs("burn", "burn")))
    assert sorted(job.name for job, _ in done) == ["0", "1"]
    assert [answer["place"] for _, answer in done] == ["1", "1"]
    assert (tmp_path / "0").exists()


def test_where_no_slot_is_left_every_job_says_why(start, tmp_path):
    with start(burnt=str(tmp_path)) as pool:
        done = {job.name: answer for job, answer in pool.run(jobs("work", "burn", "work", "work"))}
    assert done["0"]["place"] == "0"
    assert all(isinstance(done[name], ProcessLost) for name in "123")
    assert {str(done[name]) for name in "123"} == {
        "no other one starts: it exited with status 1: the GPU is on fire"
    }


def test_many_slow_stages_are_not_one_and_the_time_between_them_is_free(start):
    with start(seconds=1.0) as pool:
        [(_, answer)] = pool.run(jobs("stages"))
    assert answer["done"] == 1


def test_a_stage_that_takes_too_long_costs_its_job_only(start):
    with start(seconds=0.5) as pool:
        done = {job.name: answer for job, answer in pool.run(jobs("work", "two threads", "work"))}
    assert isinstance(done["1"], StageOverdue)
    assert str(done["1"]) == "the other thread took more than 0.5 s"
    assert done["0"]["pid"] != done["2"]["pid"]


def test_a_process_that_finds_itself_unfit_is_replaced_first(start):
    wanted = [PoolJob(name, group, {"do": "once", "group": group}) for name, group in ("1a", "2a", "3b")]
    with start() as pool:
        first, second, third = (answer for _, answer in pool.run(wanted))
    assert first["pid"] == second["pid"] != third["pid"]


def test_processes_that_cannot_start_end_the_run_with_their_last_words(start):
    with start(2, broken=True) as pool, pytest.raises(PoolFailed, match="the GPU is on fire"):
        list(pool.run(jobs("work", "work", "work")))


@pytest.mark.parametrize("deaf", [False, True])
def test_closing_ends_processes_that_are_busy(start, tmp_path, monkeypatch, deaf):
    monkeypatch.setattr(pool_process, "GRACE", 0.2)
    wanted = [
        PoolJob("quick", "a", {"do": "work"}),
        PoolJob("slow", "a", {"do": "hang", "deaf": deaf, "at": str(tmp_path / "hanging")}),
    ]
    with start() as pool:
        _, answer = next(pool.run(wanted))
        wait_until((tmp_path / "hanging").exists)
    assert gone(answer["pid"])


def filled(jobs):
    left = JobQueue()
    for job in jobs:
        left.put(job)
    return left


def test_a_queue_keeps_to_a_group_then_begins_another_then_helps():
    left = filled(PoolJob(name, name[0], {}) for name in ("a1", "a2", "a3", "b1", "b2", "b3", "b4"))
    assert [left.take(()).name, left.take(("a",)).name] == ["a1", "a2"]
    assert left.take(()).name == "b1"  # untouched, although a has some left
    assert left.take(("c",)).name == "b2"  # nothing untouched: helps where most is left
    assert [left.take(("a",)).name, left.take(("a",)).name] == ["a3", "b3"]
    assert [job.name for job in left.close()] == ["b4"]
    assert left.take(("b",)) is None


def test_a_process_comes_back_to_what_it_keeps_before_it_begins_another_group():
    left = filled(PoolJob(name, name[0], {}) for name in ("a1", "b1", "a2", "c1", "b2"))
    assert [left.take(()).name, left.take(("a",)).name] == ["a1", "a2"]
    assert left.take(("a",)).name == "b1"
    assert left.take(("x", "a", "b")).name == "b2"
    assert left.take(("b", "a")).name == "c1"


def test_a_process_keeps_the_groups_of_its_last_jobs():
    kept = None
    for group in "abacd":
        kept = kept_after(Task(PoolJob(group, group, {})), kept)
    assert kept == ["d", "c", "a"]


def test_a_job_waits_for_the_free_process_that_keeps_its_group():
    left = filled([PoolJob("a1", "a", {}), PoolJob("b1", "b", {})])
    taken = queue.SimpleQueue()

    def work():
        groups = ()
        while (job := left.take(groups)) is not None:
            groups = (job.group,)
            taken.put((threading.get_ident(), job.group))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    done = {taken.get(), taken.get()}
    for group in "abbaab" if len({ident for ident, _ in done}) == 2 else "":
        wait_until(lambda: left._free == 2)
        left.put(PoolJob("next", group, {}))
        assert taken.get() in done
    left.close()
    for thread in threads:
        thread.join()


def test_one_free_process_that_keeps_three_groups_does_not_count_for_each_of_them():
    left = JobQueue()
    thread = threading.Thread(target=left.take, args=(("a", "b", "c"),), daemon=True)
    thread.start()
    wait_until(lambda: left._free == 1)
    assert not left.put(PoolJob("a1", "a", {}))
    thread.join()
    assert [left.put(PoolJob(name, name, {})) for name in ("b", "c")] == [True, True]
    left.close()


def test_a_queue_gives_every_job_once_to_many_at_a_time():
    wanted = [PoolJob(str(n), str(n % 7), {}) for n in range(3000)]
    left = filled(wanted)
    taken = queue.SimpleQueue()

    def work():
        groups = ()
        while (job := left.take(groups)) is not None:
            groups = (job.group,)
            taken.put(job.name)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    names = [taken.get() for _ in wanted]
    left.close()
    for thread in threads:
        thread.join()
    assert sorted(names, key=int) == [job.name for job in wanted]
    assert taken.empty()


def test_jobs_that_come_later_find_the_process_that_is_there(start):
    with start(2) as pool:
        [(_, first)] = pool.run(jobs("work"))
        [(_, second)] = pool.run(jobs("work"))
        third, fourth = (answer for _, answer in pool.run(jobs("work", "work")))
    assert first["pid"] == second["pid"] and second["done"] == 2
    assert {third["place"], fourth["place"]} <= {"0", "1"}


def test_few_jobs_of_one_group_start_one_process_and_other_groups_start_others(start, tmp_path):
    with start(9) as pool:
        few = [answer["place"] for _, answer in pool.run(jobs("work", "work", "work"))]
    assert few == ["0", "0", "0"]
    (tmp_path / "met").mkdir()
    meeting = {"do": "meet", "at": str(tmp_path / "met")}
    with start(9) as pool:
        others = list(pool.run([PoolJob(str(n), str(n), meeting) for n in range(2)]))
        assert {answer["place"] for _, answer in others} == {"0", "1"}


def test_closing_answers_what_still_waits(start, tmp_path):
    at = tmp_path / "hanging"
    with start() as pool:
        held, waits = (pool.submit(job) for job in jobs("hang", "work", deaf=False, at=str(at)))
        wait_until(at.exists)
    assert isinstance(held.exception(), ProcessLost)
    assert isinstance(waits.exception(), ProcessLost)
    assert isinstance(pool.submit(*jobs("work")).exception(), ProcessLost)

"""The pool, with real processes that do simple jobs."""

import os
import threading
from collections import Counter

import pytest
from waiting import wait_until

from pytest_kernelllm.verify import pool as pool_module
from pytest_kernelllm.verify.pool import JobQueue, PoolFailed, PoolJob, ProcessLost, ProcessPool, Slot

WORKER = """
import ctypes, os, signal, socket, sys, threading
from pytest_kernelllm.judge.shared.channel import Channel

channel = Channel(socket.socket(fileno=int(sys.argv[1])))
handshake = channel.receive()
if handshake.get("broken"):
    sys.exit("the GPU is on fire")
channel.send({"ready": True})
group = None
while True:
    request = channel.receive()
    match request["do"]:
        case "exit":
            os._exit(3)
        case "crash":
            ctypes.string_at(0)
        case "hang":
            if request["deaf"]:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (open(request["at"], "w")).close()
            threading.Event().wait()
        case "once" if group not in (None, request["group"]):
            channel.send({"unfit": True})
            sys.exit()
    group = request.get("group")
    channel.send({"pid": os.getpid(), "place": os.environ["PLACE"], "handshake": handshake})
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    (tmp_path / "simple_worker.py").write_text(WORKER)
    monkeypatch.syspath_prepend(str(tmp_path))

    def start(count=1, **handshake):
        return ProcessPool(
            "simple_worker", [Slot({"n": n, **handshake}, {"PLACE": str(n)}) for n in range(count)]
        )

    return start


def jobs(*requests, group="g"):
    return [PoolJob(str(n), group, {"do": do}) for n, do in enumerate(requests)]


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_every_job_is_done_once_and_in_its_slot(start):
    wanted = [PoolJob(str(n), str(n % 5), {"do": "work"}) for n in range(40)]
    with start(3) as pool:
        done = list(pool.run(wanted))
    assert Counter(job.name for job, _ in done) == Counter(job.name for job in wanted)
    assert all(answer["handshake"] == {"n": int(answer["place"])} for _, answer in done)
    assert all(gone(answer["pid"]) for _, answer in done)


@pytest.mark.parametrize(
    ("do", "words"), [("exit", "it exited with status 3"), ("crash", "it was killed by SIGSEGV")]
)
def test_a_process_that_dies_costs_the_job_it_held(start, do, words):
    with start() as pool:
        done = {job.name: answer for job, answer in pool.run(jobs("work", do, "work", "work"))}
    assert isinstance(done["1"], ProcessLost)
    assert str(done["1"]) == words
    assert done["0"]["pid"] != done["2"]["pid"] == done["3"]["pid"]


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
    monkeypatch.setattr(pool_module, "GRACE", 0.2)
    wanted = [
        PoolJob("quick", "a", {"do": "work"}),
        PoolJob("slow", "a", {"do": "hang", "deaf": deaf, "at": str(tmp_path / "hanging")}),
    ]
    with start() as pool:
        _, answer = next(pool.run(wanted))
        wait_until((tmp_path / "hanging").exists)
    assert gone(answer["pid"])


def test_a_queue_keeps_to_a_group_then_begins_another_then_helps():
    left = JobQueue([PoolJob(name, name[0], {}) for name in ("a1", "a2", "a3", "b1", "b2", "b3", "b4")])

    def take(group):
        job = left.take(group)
        return job and job.name

    assert [take(""), take("a")] == ["a1", "a2"]
    assert take("") == "b1"  # untouched, although a has some left
    assert take("c") == "b2"  # nothing untouched: helps where most is left
    assert [take("a"), take("a"), take("b"), take("b")] == ["a3", "b3", "b4", None]


def test_a_queue_gives_every_job_once_to_many_at_a_time():
    wanted = [PoolJob(str(n), str(n % 7), {}) for n in range(3000)]
    left = JobQueue(wanted)
    taken = []

    def work():
        group = ""
        while (job := left.take(group)) is not None:
            group = job.group
            taken.append(job.name)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken, key=int) == [job.name for job in wanted]

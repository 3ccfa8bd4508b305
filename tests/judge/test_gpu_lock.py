"""The GPU's lock, held by real processes."""

import os
import random
import select
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelllm_judge import gpu_lock
from kernelllm_judge.findings import WAITING, Durations
from kernelllm_judge.timer import Timer

HOLD = """
import sys
from kernelllm_judge.gpu_lock import hold_gpu
with hold_gpu(sys.argv[1], alone=sys.argv[2] == "alone"):
    print("in", flush=True)
    sys.stdin.readline()
"""

COME_AND_GO = """
import os, random, sys
from kernelllm_judge.gpu_lock import hold_gpu
draw = random.Random(int(sys.argv[3]))
log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
for _ in range(60):
    alone = draw.random() < 0.4
    with hold_gpu(sys.argv[1], alone=alone):
        os.write(log, f"in {os.getpid()} {alone}\\n".encode())
        os.sched_yield()
        os.write(log, f"out {os.getpid()} {alone}\\n".encode())
"""


class Holder:
    """A process that locks the GPU and releases it on request."""

    def __init__(self, gpu, how):
        command = [sys.executable, "-c", HOLD, gpu, how]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_until_in(self):
        assert self.process.stdout.readline() == "in\n"

    def wait_until_queued(self):
        """Wait until the system reports that it waits for a lock; False if it got the lock instead."""
        while True:
            for line in Path("/proc/locks").read_text().splitlines():
                if "->" in line and str(self.process.pid) in line.split():
                    return True
            assert self.process.poll() is None
            if _readable(self.process.stdout):
                return False

    def leave(self):
        self.process.communicate("\n")


def _readable(stream):
    return bool(select.select([stream], [], [], 0)[0])


@pytest.fixture
def gpu():
    name = f"test-{uuid.uuid4()}"
    yield name
    for path in gpu_lock.FOLDER.glob(f"kernelllm-*-{name}.*"):
        path.unlink()


@pytest.fixture
def hold(gpu):
    holders = []

    def start(how):
        holders.append(Holder(gpu, how))
        return holders[-1]

    yield start
    for holder in holders:
        holder.process.kill()
        holder.process.wait()
        holder.process.stdin.close()
        holder.process.stdout.close()


def test_checkers_share_the_gpu(hold):
    first, second = hold("shared"), hold("shared")
    first.wait_until_in()
    second.wait_until_in()


def test_who_waits_to_be_alone_is_not_overtaken_by_checkers(hold):
    checker = hold("shared")
    checker.wait_until_in()
    timer = hold("alone")
    assert timer.wait_until_queued()
    late = hold("shared")
    assert late.wait_until_queued()
    checker.leave()
    timer.wait_until_in()
    assert late.wait_until_queued()
    timer.leave()
    late.wait_until_in()


def test_who_waits_to_be_alone_goes_before_checkers_that_came_earlier(hold):
    timer = hold("alone")
    timer.wait_until_in()
    checker = hold("shared")
    assert checker.wait_until_queued()
    late = hold("alone")
    assert late.wait_until_queued()
    timer.leave()
    late.wait_until_in()
    assert checker.wait_until_queued()
    late.leave()
    checker.wait_until_in()


def test_who_releases_the_gpu_for_a_while_is_not_waited_for_and_waits_to_have_it_again(gpu, hold):
    durations = Durations()
    timer = Timer(gpu, 0)
    with timer.sharing():
        alone = hold("alone")
        assert alone.wait_until_queued()
        with ThreadPoolExecutor(1) as thread, timer.released(durations):
            alone.wait_until_in()
            left = thread.submit(lambda: (_wait_until_one_is_queued_behind(alone), alone.leave()))
        left.result()
        late = hold("alone")
        assert late.wait_until_queued()
    late.wait_until_in()
    assert set(durations.seconds) == {WAITING}
    late.leave()
    with timer.released(durations):  # it has nothing to release
        assert hold("shared").process.stdout.readline() == "in\n"


def _wait_until_one_is_queued_behind(holder):
    """Wait until this process waits for a lock that another one holds."""
    while not any(
        "->" in line and str(os.getpid()) in line.split()
        for line in Path("/proc/locks").read_text().splitlines()
    ):
        assert holder.process.poll() is None


def test_a_holder_that_is_killed_leaves_the_gpu_free(hold):
    timer = hold("alone")
    timer.wait_until_in()
    other = hold("alone")
    assert other.wait_until_queued()
    timer.process.kill()
    other.wait_until_in()


def test_who_is_alone_is_alone(gpu, tmp_path):
    log = tmp_path / "log"
    log.touch()
    seeds = random.Random(7).sample(range(1000), 4)
    running = [
        subprocess.Popen([sys.executable, "-c", COME_AND_GO, gpu, str(log), str(seed)]) for seed in seeds
    ]
    assert [process.wait() for process in running] == [0, 0, 0, 0]
    inside = {}
    lines = log.read_text().splitlines()
    assert len(lines) == 4 * 60 * 2
    for line in lines:
        what, pid, alone = line.split()
        if what == "out":
            del inside[pid]
            continue
        assert not inside if alone == "True" else "True" not in inside.values(), line
        inside[pid] = alone


def test_two_runs_with_other_temporary_folders_use_one_lock(gpu, monkeypatch, tmp_path, hold):
    timer = hold("alone")
    timer.wait_until_in()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    other = hold("alone")
    assert other.wait_until_queued()

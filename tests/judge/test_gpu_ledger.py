"""Leases of GPU memory: shared by threads and processes, in the order of asking, gone with their holder."""

import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from kernelllm_judge.gpu_lock import UNIT, GpuLedger

HOLD = """
import sys
from kernelllm_judge.gpu_lock import GpuLedger, UNIT
with GpuLedger(sys.argv[1], 8 * UNIT).lease(int(sys.argv[2]) * UNIT):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def name():
    made = f"test-{uuid.uuid4()}"
    yield made
    for suffix in ("memory", "memory-turnstile", "memory-large"):
        Path(f"/tmp/kernelllm-{os.getuid()}-{made}.{suffix}").unlink(missing_ok=True)


@pytest.fixture
def hold(name):
    """Starts processes that hold some units until a line is written to them."""
    started = []

    def hold(units):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, name, str(units)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        process.kill()
        process.communicate()


def lease_in_a_thread(ledger, units):
    """Returns two events: that the lease is held, and that it shall end; and the thread."""
    held, end = threading.Event(), threading.Event()

    def work():
        with ledger.lease(units * UNIT):
            held.set()
            end.wait(30)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return held, end, thread


def test_leases_that_fit_are_held_together(name):
    ledger = GpuLedger(name, 8 * UNIT)
    with ledger.lease(3 * UNIT) as first, ledger.lease(5 * UNIT - 1) as second:
        assert (first, second) == (3 * UNIT, 5 * UNIT)


def test_no_lease_exceeds_the_budget(name):
    with GpuLedger(name, 8 * UNIT).lease(1 << 60) as leased:
        assert leased == 8 * UNIT


def test_a_thread_waits_for_another(name):
    ledger = GpuLedger(name, 8 * UNIT)
    first, end_first, one = lease_in_a_thread(ledger, 6)
    assert first.wait(30)
    second, end_second, two = lease_in_a_thread(ledger, 3)
    assert not second.wait(0.2)
    end_first.set()
    assert second.wait(30)
    end_second.set()
    one.join(30)
    two.join(30)


def test_a_lease_ends_with_its_process(name, hold):
    process = hold(8)
    held, end, thread = lease_in_a_thread(GpuLedger(name, 8 * UNIT), 8)
    assert not held.wait(0.2)
    process.send_signal(signal.SIGKILL)
    assert held.wait(30)
    end.set()
    thread.join(30)


def test_a_large_lease_is_not_overtaken(name, hold):
    ledger = GpuLedger(name, 8 * UNIT)
    small = hold(2)
    large, end_large, one = lease_in_a_thread(ledger, 8)
    assert not large.wait(0.2)
    late, end_late, two = lease_in_a_thread(ledger, 1)
    assert not late.wait(0.2)
    small.stdin.write("\n")
    small.stdin.flush()
    assert large.wait(30)
    assert not late.is_set()
    end_large.set()
    assert late.wait(30)
    end_late.set()
    one.join(30)
    two.join(30)


def test_small_leases_pass_a_large_one_that_waits_for_another(name):
    ledger = GpuLedger(name, 8 * UNIT)
    first, end_first, one = lease_in_a_thread(ledger, 5)
    assert first.wait(30)
    second, end_second, two = lease_in_a_thread(ledger, 5)
    assert not second.wait(0.2)
    with ledger.lease(3 * UNIT):
        assert not second.is_set()
    end_first.set()
    assert second.wait(30)
    end_second.set()
    one.join(30)
    two.join(30)

"""The judge's end of a worker: what it does while the worker compiles."""

import contextlib
import itertools
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernelllm_judge.handle import RELEASES, Exit, WorkerDied, WorkerHandle
from kernelllm_judge.shared.channel import COMPILING, Channel, ChannelClosed, ChannelTimeout


class Gpu:
    """Notes when it is released and acquired again."""

    def __init__(self):
        self.held = True

    @contextlib.contextmanager
    def released(self):
        self.held = False
        try:
            yield
        finally:
            self.held = True


@pytest.fixture
def ends():
    """The two ends of a channel."""
    ours, theirs = map(Channel, socket.socketpair())
    with contextlib.closing(ours), contextlib.closing(theirs):
        yield ours, theirs


def requested(ends, work, seconds=20.0):
    """What the judge gets for a request while ``work`` plays the worker, and the GPU."""
    gpu = Gpu()
    handle = WorkerHandle(ends[0], lambda: Exit("it ended"), seconds, gpu.released)
    with ThreadPoolExecutor(1) as thread:
        worker = thread.submit(work, ends[1], gpu)
        try:
            return handle.request("run"), gpu
        finally:
            worker.result()


def test_the_gpu_is_released_while_the_worker_compiles_and_held_when_it_goes_on(ends):
    def work(channel, gpu):
        assert channel.receive() == {"op": "run"}
        for _ in range(2):
            channel.send({COMPILING: True})
            while gpu.held:
                pass
            channel.send({COMPILING: False})
            assert channel.receive() == {"op": "continue"}
            assert gpu.held
        channel.send({"ok": True})

    reply, gpu = requested(ends, work)
    assert reply == {"ok": True}
    assert gpu.held


def test_a_reply_in_the_middle_of_a_compilation_counts(ends):
    def work(channel, gpu):
        channel.receive()
        channel.send({COMPILING: True})
        channel.send({"error": "stopped"})

    reply, gpu = requested(ends, work)
    assert reply == {"error": "stopped"}
    assert gpu.held


def lying(messages):
    """Returns a worker that sends these messages, and reads nothing but the request."""

    def work(channel, gpu):
        channel.receive()
        with contextlib.suppress(ChannelClosed, ChannelTimeout):
            for message in messages:
                channel.send(message, 10.0)

    return work


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([{COMPILING: False}], "out of turn"),
        ([{COMPILING: "yes"}], "out of turn"),
        ([{COMPILING: True}, {COMPILING: True}], "inside another"),
    ],
)
def test_announcements_come_in_turn(ends, messages, why):
    with pytest.raises(WorkerDied, match=why):
        requested(ends, lying(messages))


def test_endless_announcements_end_with_the_workers_time(ends):
    messages = itertools.cycle([{COMPILING: True}, {COMPILING: False}])
    with pytest.raises(WorkerDied, match="did not finish `run` before the deadline"):
        requested(ends, lying(messages), seconds=0.5)


def test_the_gpu_is_released_so_many_times_and_no_more(ends):
    held = []

    def work(channel, gpu):
        channel.receive()
        for _ in range(RELEASES + 5):
            channel.send({COMPILING: True})
            channel.send({COMPILING: False})
            channel.receive()
        channel.send({"ok": True})

    class Counting(Gpu):
        def released(self):
            held.append(self)
            return super().released()

    handle = WorkerHandle(ends[0], lambda: Exit("it ended"), 20.0, Counting().released)
    with ThreadPoolExecutor(1) as thread:
        worker = thread.submit(work, ends[1], None)
        assert handle.request("run") == {"ok": True}
        worker.result()
    assert len(held) == RELEASES


def test_compilations_take_the_workers_time(ends):
    def work(channel, gpu):
        channel.receive()
        with contextlib.suppress(ChannelClosed):
            channel.send({COMPILING: True})
            channel.receive()

    with pytest.raises(WorkerDied, match="did not finish `run` before the deadline"):
        gpu = Gpu()
        handle = WorkerHandle(ends[0], lambda: Exit("it ended"), 0.2, gpu.released)
        with ThreadPoolExecutor(1) as thread, contextlib.closing(ends[0]):
            thread.submit(work, ends[1], gpu)
            handle.request("run")
    assert gpu.held

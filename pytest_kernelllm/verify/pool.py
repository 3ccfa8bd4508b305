"""A pool of processes that do jobs: spread over GPUs, each taking the next job when it is free, replaced when they die.

The pool does not know what a job is: requests and replies are JSON. The processes speak over a ``Channel`` on the socket
whose descriptor is their only argument.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_kernelllm.judge.shared.channel import Channel, ChannelClosed, ChannelError
from pytest_kernelllm.store.signing import VARIABLE as STORE_KEY

Reply = dict[str, Any]

UNFIT = "unfit"
"""Key of the reply by which a process asks to be replaced before it does this job."""

GRACE = 15.0
"""Seconds a process has for ending its own children before it is killed."""


@dataclass(frozen=True)
class PoolJob:
    """One thing to do."""

    name: str
    """For the caller."""
    group: str
    """Jobs of one group go to the same process while another process has something else to do."""
    request: dict[str, Any]
    """The message to the process."""


@dataclass(frozen=True)
class Slot:
    """A place for one process."""

    handshake: dict[str, Any]
    """The first message to each process here; it replies when it is ready."""
    environment: Mapping[str, str]
    """Environment variables that differ from this process's."""


class ProcessLost(Exception):
    """A process ended before it replied; the text says how."""


class PoolFailed(RuntimeError):
    """No process can be started; the text says why."""


_Done = queue.SimpleQueue[tuple[PoolJob, Reply | ProcessLost | PoolFailed]]


class JobQueue:
    """The jobs that are left. Every job is taken once. Thread-safe."""

    def __init__(self, jobs: Sequence[PoolJob]) -> None:
        """Holds all of ``jobs``; groups in the order in which they first appear."""
        self._lock = threading.Lock()
        self._new: dict[str, deque[PoolJob]] = {}
        """Groups that no process has begun."""
        self._begun: dict[str, deque[PoolJob]] = {}
        for job in jobs:
            self._new.setdefault(job.group, deque()).append(job)

    def take(self, group: str) -> PoolJob | None:
        """Takes the next job for a process whose last one was of ``group``; None when all are taken.

        One of the same group; else of a group that no process has begun; else of the group with most jobs left.
        """
        with self._lock:
            if group not in self._begun:
                if self._new:
                    group = next(iter(self._new))
                    self._begun[group] = self._new.pop(group)
                elif self._begun:
                    group = max(self._begun, key=lambda name: len(self._begun[name]))
                else:
                    return None
            jobs = self._begun[group]
            job = jobs.popleft()
            if not jobs:
                del self._begun[group]
            return job


class ProcessPool:
    """One process in each slot. Close it with ``with``; that ends them all."""

    def __init__(self, module: str, slots: Sequence[Slot]) -> None:
        """``module`` is run as ``python -m module FD``, once for each slot, when there is something to do."""
        self._runners = [_SlotRunner(module, slot) for slot in slots]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> ProcessPool:
        """Starts nothing yet."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Ends all processes; they end their own children."""
        for runner in self._runners:
            runner.close()
        for thread in self._threads:
            thread.join()

    def run(self, jobs: Sequence[PoolJob]) -> Iterator[tuple[PoolJob, Reply | ProcessLost]]:
        """Does all jobs, once; yields each with its reply, or with how its process was lost, as they are done.

        Raises:
            PoolFailed: the first process of a slot does not start.
        """
        left = JobQueue(jobs)
        done: _Done = queue.SimpleQueue()
        for runner in self._runners[: len(jobs)]:
            # Daemons: waiting for a process must not hold up a command that is interrupted twice.
            self._threads.append(threading.Thread(target=runner.work, args=(left, done), daemon=True))
            self._threads[-1].start()
        for _ in jobs:
            job, reply = done.get()
            if isinstance(reply, PoolFailed):
                raise reply
            yield job, reply


class _SlotRunner:
    """Runs the processes of one slot, one after the other. Its one thread starts each, talks to it and ends it.

    One thread, because the system ends a process when the thread that started it ends.
    """

    def __init__(self, module: str, slot: Slot) -> None:
        self._module = module
        self._slot = slot
        self._process: _WorkerProcess | None = None
        self._started = False
        self._closed = False
        self._lock = threading.Lock()

    def work(self, left: JobQueue, done: _Done) -> None:
        """Does jobs until none is left."""
        group = ""
        while not self._closed and (job := left.take(group)) is not None:
            group = job.group
            try:
                done.put((job, self._do(job)))
            except (ProcessLost, PoolFailed) as failure:
                done.put((job, failure))
            except Exception as error:  # whoever waits for this job must get it
                done.put((job, PoolFailed(f"The pool failed: {type(error).__name__}: {error}")))
        self._end()

    def close(self) -> None:
        """From any thread: starts nothing more, and asks the process to end."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.terminate()

    def _do(self, job: PoolJob) -> Reply:
        reply = self._ask(job)
        if UNFIT in reply:
            self._end()
            reply = self._ask(job)
        return reply

    def _ask(self, job: PoolJob) -> Reply:
        process = self._process or self._start()
        try:
            process.channel.send(job.request)
            return process.channel.receive()
        except (ChannelClosed, ChannelError):
            raise ProcessLost(self._end(by_itself=True)) from None

    def _start(self) -> _WorkerProcess:
        with self._lock:
            if self._closed:
                raise ProcessLost("the pool is being closed")
            process = self._process = _WorkerProcess(self._module, self._slot)
        try:
            process.channel.send(self._slot.handshake)
            process.channel.receive()
        except (ChannelClosed, ChannelError):
            how = self._end(by_itself=True)
            if not self._started:
                raise PoolFailed(f"A judging process cannot start: {how}") from None
            raise ProcessLost(how) from None
        self._started = True
        return process

    def _end(self, *, by_itself: bool = False) -> str:
        """Waits until the process has ended, if there is one, and says how.

        ``by_itself``: it closed its channel, so it is ending without being asked.
        """
        process = self._process
        if process is None:
            return ""
        with self._lock:
            process.kill_later() if by_itself else process.terminate()
        how = process.wait()
        with self._lock:
            self._process = None
            process.reap()
        return how


class _WorkerProcess:
    """One process. It is reaped last, so that no other process gets its number before."""

    def __init__(self, module: str, slot: Slot) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self._killer: threading.Timer | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by reap
        path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100  # "" is the working directory
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            # It runs references and stores nothing, so it gets no key to the store.
            env={**os.environ, **slot.environment, STORE_KEY: "", "PYTHONPATH": os.pathsep.join(path)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for the command, which then ends its processes in good order
        )
        theirs.close()

    def terminate(self) -> None:
        """Asks it to end its children and itself, and kills it if it does not."""
        os.kill(self._popen.pid, signal.SIGTERM)
        self.kill_later()

    def kill_later(self) -> None:
        """Kills it if it has not ended after ``GRACE``. Two threads must not call this at once."""
        if self._killer is None:
            self._killer = threading.Timer(GRACE, _kill, (self._popen.pid,))
            self._killer.daemon = True
            self._killer.start()

    def wait(self) -> str:
        """Waits until it has ended, kills what it left in its session, and says how it ended."""
        how = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        assert how is not None  # it is only None with WNOHANG
        _kill(self._popen.pid)
        if how.si_code != os.CLD_EXITED:
            return f"it was killed by {signal.Signals(how.si_status).name}"
        self._log.seek(0)
        last_line = self._log.read().decode(errors="replace").strip().rpartition("\n")[2][:300]
        return f"it exited with status {how.si_status}" + (f": {last_line}" if last_line else "")

    def reap(self) -> None:
        """Releases everything that belongs to it."""
        if self._killer is not None:
            self._killer.cancel()
        self._popen.wait()
        self.channel.close()
        self._log.close()


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)

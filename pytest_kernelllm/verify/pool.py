"""A pool of processes that do jobs: spread over GPUs, taking from one agenda as they get free, replaced when they die.

What a job is, the pool does not know: orders and answers are JSON. The processes speak over a ``Channel`` on the socket
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

Answer = dict[str, Any]

UNFIT = "unfit"
"""Key of the answer by which a process asks to be replaced before it does this job."""

GRACE = 15.0
"""Seconds a process has for ending its own children before it is killed."""


@dataclass(frozen=True)
class Job:
    """One thing to do."""

    name: str
    """For whoever wants it done."""
    group: str
    """Jobs of one group go to the same process while another process has something else to do."""
    order: dict[str, Any]


@dataclass(frozen=True)
class Seat:
    """A place for one process."""

    hello: dict[str, Any]
    """The first message to each process here; it answers when it is ready."""
    environment: Mapping[str, str]
    """Environment variables that differ from this process's."""


class Lost(Exception):
    """A process ended before it answered; the text says how."""


class PoolFailed(RuntimeError):
    """No process can be started; the text says why."""


_Done = queue.SimpleQueue[tuple[Job, Answer | Lost | PoolFailed]]


class Agenda:
    """What is left to do. Every job is taken once. Thread-safe."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        """All of ``jobs``; groups in the order in which they first appear."""
        self._lock = threading.Lock()
        self._fresh: dict[str, deque[Job]] = {}
        """Groups that nobody has begun."""
        self._begun: dict[str, deque[Job]] = {}
        for job in jobs:
            self._fresh.setdefault(job.group, deque()).append(job)

    def take(self, group: str) -> Job | None:
        """The next job for a process whose last one was of ``group``; None when all are taken.

        One of the same group; else of a group that is still untouched; else of whichever has most left to do.
        """
        with self._lock:
            if group not in self._begun:
                if self._fresh:
                    group = next(iter(self._fresh))
                    self._begun[group] = self._fresh.pop(group)
                elif self._begun:
                    group = max(self._begun, key=lambda name: len(self._begun[name]))
                else:
                    return None
            jobs = self._begun[group]
            job = jobs.popleft()
            if not jobs:
                del self._begun[group]
            return job


class Pool:
    """Processes at seats. Close it with ``with``; that ends them all."""

    def __init__(self, module: str, seats: Sequence[Seat]) -> None:
        """``module`` is run as ``python -m module FD``, once a seat, when there is something to do."""
        self._crews = [_Crew(module, seat) for seat in seats]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Pool:
        """Nothing is started yet."""
        return self

    def __exit__(self, *exc: object) -> None:
        """End all processes; they end their own children."""
        for crew in self._crews:
            crew.dismiss()
        for thread in self._threads:
            thread.join()

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Answer | Lost]]:
        """Do all jobs, once; each with its answer, or with how its process was lost, as they are done.

        Raises:
            PoolFailed: the first process of a seat does not start.
        """
        agenda = Agenda(jobs)
        done: _Done = queue.SimpleQueue()
        for crew in self._crews[: len(jobs)]:
            # Daemons: waiting for a process must not hold up a command that is interrupted twice.
            self._threads.append(threading.Thread(target=crew.work, args=(agenda, done), daemon=True))
            self._threads[-1].start()
        for _ in jobs:
            job, answer = done.get()
            if isinstance(answer, PoolFailed):
                raise answer
            yield job, answer


class _Crew:
    """The processes of one seat, one after the other; each is started, asked and ended by the crew's one thread.

    By one thread, because a process is also told to end when the thread that started it ends.
    """

    def __init__(self, module: str, seat: Seat) -> None:
        self._module = module
        self._seat = seat
        self._process: _Process | None = None
        self._started = False
        self._dismissed = False
        self._lock = threading.Lock()

    def work(self, agenda: Agenda, done: _Done) -> None:
        """Do jobs until none is left."""
        group = ""
        while not self._dismissed and (job := agenda.take(group)) is not None:
            group = job.group
            try:
                done.put((job, self._do(job)))
            except (Lost, PoolFailed) as failure:
                done.put((job, failure))
            except Exception as error:  # whoever waits for this job must hear of it
                done.put((job, PoolFailed(f"The pool failed: {type(error).__name__}: {error}")))
        self._end()

    def dismiss(self) -> None:
        """From any thread: start nothing more, and tell the process to end."""
        with self._lock:
            self._dismissed = True
            if self._process is not None:
                self._process.tell_to_end()

    def _do(self, job: Job) -> Answer:
        answer = self._ask(job)
        if UNFIT in answer:
            self._end()
            answer = self._ask(job)
        return answer

    def _ask(self, job: Job) -> Answer:
        process = self._process or self._start()
        try:
            process.channel.send(job.order)
            return process.channel.receive()
        except (ChannelClosed, ChannelError):
            raise Lost(self._end(told=False)) from None

    def _start(self) -> _Process:
        with self._lock:
            if self._dismissed:
                raise Lost("the pool is being closed")
            process = self._process = _Process(self._module, self._seat)
        try:
            process.channel.send(self._seat.hello)
            process.channel.receive()
        except (ChannelClosed, ChannelError):
            text = self._end(told=False)
            if not self._started:
                raise PoolFailed(f"A judging process cannot start: {text}") from None
            raise Lost(text) from None
        self._started = True
        return process

    def _end(self, *, told: bool = True) -> str:
        """See the process out, if there is one; how it ended. One that closed its channel is ending untold."""
        process = self._process
        if process is None:
            return ""
        with self._lock:
            process.tell_to_end() if told else process.hurry()
        text = process.end()
        with self._lock:
            self._process = None
            process.reap()
        return text


class _Process:
    """One process. It is reaped last, so that its number means nobody else before."""

    def __init__(self, module: str, seat: Seat) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self._impatience: threading.Timer | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by reap
        path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100  # "" is the working directory
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            # It runs references, and stores nothing: what signs the store is none of its business.
            env={**os.environ, **seat.environment, STORE_KEY: "", "PYTHONPATH": os.pathsep.join(path)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for the command, which then ends its processes in good order
        )
        theirs.close()

    def tell_to_end(self) -> None:
        """Let it end its children and itself."""
        os.kill(self._popen.pid, signal.SIGTERM)
        self.hurry()

    def hurry(self) -> None:
        """Kill it if it has not ended after ``GRACE``. Not to be called by two threads at once."""
        if self._impatience is None:
            self._impatience = threading.Timer(GRACE, _kill, (self._popen.pid,))
            self._impatience.daemon = True
            self._impatience.start()

    def end(self) -> str:
        """Wait until it has ended, and whatever it left in its session with it; how it ended."""
        how = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        assert how is not None  # it is only None with WNOHANG
        _kill(self._popen.pid)
        if how.si_code != os.CLD_EXITED:
            return f"it was killed by {signal.Signals(how.si_status).name}"
        self._log.seek(0)
        words = self._log.read().decode(errors="replace").strip().rpartition("\n")[2][:300]
        return f"it exited with status {how.si_status}" + (f": {words}" if words else "")

    def reap(self) -> None:
        """Forget it."""
        if self._impatience is not None:
            self._impatience.cancel()
        self._popen.wait()
        self.channel.close()
        self._log.close()


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)

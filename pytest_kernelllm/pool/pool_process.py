"""One process of a pool: started in its slot, asked, ended and reaped.

The process speaks over a ``Channel`` on the socket whose descriptor is its first argument.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Self

from kernelllm_judge.core.shorten import whole
from kernelllm_judge.shared.channel import Channel, ChannelTimeout
from pytest_kernelllm.pool.hosts import Hosts

Reply = dict[str, Any]

STAGE = "stage"
"""Key of the messages by which a process reports, before its reply, which stage of a job it enters: one that has a deadline.

The empty name leaves it. ``thread`` numbers the thread that reports, which is in one stage at a time."""

PART = "part"
"""Key of the messages by which a process sends a part of a reply before the reply, which has it again."""

UNFIT = "unfit"
"""Key of the reply by which a process asks to be replaced before it does this job."""

PENDING = 0.1
"""Seconds to read what a process reported while this one could not run, before it is found to be late."""

GRACE = 15.0
"""Seconds a process has for ending its own children before it is killed."""

HURRY = 0.5
"""As many where the command is interrupted: a cancelled CI job has a few seconds in all."""


@dataclass(frozen=True)
class Slot:
    """Where one process of a pool runs."""

    handshake: dict[str, Any]
    """The first message to each process here; it replies when it is ready."""
    environment: Mapping[str, str]
    """Environment variables that differ from this process's."""

    @classmethod
    def of(cls, handshake: dict[str, Any], threads: int, gpu: str = "") -> Self:
        """Returns the place for a process with so many threads, and with one GPU, by its UUID, if there is one."""
        # Inductor would start processes of its own, which import torch while this one compiles what little there is.
        variables = {"OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        return cls(handshake, variables | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}))


class StageOverdue(Exception):
    """A process did not leave a stage of the job in time, and was ended; the text names stage and seconds."""


class PoolProcess:
    """One process. It is reaped last, so that no other process gets its number before."""

    def __init__(self, module: str, slot: Slot, hosts: Hosts) -> None:
        """Has a process forked that runs ``main`` of a module in a slot.

        Raises:
            HostEnded: nothing can be forked.
            launching.ServerFailed: torch, triton or numpy is not installed.
        """
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self._killer: threading.Timer | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by reap
        with theirs:
            self._forked = hosts.fork(module, theirs.fileno(), dict(slot.environment), self._log.fileno())

    def ask(
        self,
        request: dict[str, Any],
        stage_seconds: float = math.inf,
        parts: SimpleQueue[Reply | None] | None = None,
    ) -> Reply:
        """Sends a message and waits for the reply; ``parts`` gets what comes of it before."""
        self.channel.send(request)
        stages: dict[int, tuple[str, float]] = {}
        """The stage that each thread is in, with the time at which its deadline ends."""
        while True:
            stage, end = min(stages.values(), key=lambda each: each[1], default=("", math.inf))
            wait = None if end == math.inf else max(end - time.monotonic(), PENDING)
            try:
                message = self.channel.receive(wait)
            except ChannelTimeout:
                raise StageOverdue(f"{stage} took more than {stage_seconds:g} s") from None
            if PART in message:
                if parts is not None:
                    parts.put(message[PART])
                continue
            if STAGE not in message:
                return message
            stages.pop(message["thread"], None)
            if message[STAGE]:
                stages[message["thread"]] = message[STAGE], time.monotonic() + stage_seconds

    def terminate(self, seconds: float = math.inf) -> None:
        """Asks it to end its children and itself, and kills it if it does not; see ``kill_later``."""
        if number := self._forked.number():
            os.kill(number, signal.SIGTERM)
        else:
            self.channel.sock.shutdown(socket.SHUT_RDWR)  # it ends when it is forked, if it ever is
        self.kill_later(seconds)

    def kill_later(self, seconds: float = math.inf) -> None:
        """Kills it if it has not ended after so long, or after ``GRACE``. Two threads must not call this at once."""
        if self._killer is not None and seconds < GRACE:
            self._killer.cancel()
            self._killer = None
        if self._killer is None:
            self._killer = threading.Timer(min(seconds, GRACE), self._kill)
            self._killer.daemon = True
            self._killer.start()

    def wait(self) -> str:
        """Waits until it has ended, kills what it left in its session, and says how it ended."""
        if self._forked.number():
            self._forked.wait()
        self._kill()
        self._log.seek(0)
        log = self._log.read().decode(errors="replace").strip()
        code = self._forked.code
        if code is None:
            return "the process that it was forked from has ended"
        if code < 0:
            name = _SIGNALS.get(-code, f"signal {-code}")
            crash = _CRASH.search(log)
            return f"it was killed by {name}" + (f" in {crash[3]} ({crash[1]}:{crash[2]})" if crash else "")
        last_line = whole(log.rpartition("\n")[2])
        return f"it exited with status {code}" + (f": {last_line}" if last_line else "")

    def reap(self) -> None:
        """Releases the process's sockets and threads."""
        if self._killer is not None:
            self._killer.cancel()
        self._forked.close()
        self.channel.close()
        self._log.close()

    def _kill(self) -> None:
        if number := self._forked.number():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(number, signal.SIGKILL)


_CRASH = re.compile(r"Current thread .*\n  File \".*?([^/\"]+)\", line (\d+) in (\S+)")
"""What ``faulthandler`` writes of the thread that crashed: file, line and function."""

_SIGNALS = {each.value: each.name for each in signal.Signals}

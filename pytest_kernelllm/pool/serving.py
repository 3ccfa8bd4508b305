"""What the processes of a pool have in common: they answer messages until they are asked to end, or no longer fit."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from kernelllm_judge.shared.channel import Channel, ChannelClosed
from pytest_kernelllm.pool.messages import Handshake
from pytest_kernelllm.pool.pool_process import STAGE, UNFIT

if TYPE_CHECKING:
    from types import FrameType

PR_SET_PDEATHSIG = 1


class _Terminated(BaseException):
    """The pool asked this process to end."""


class StageReports:
    """Reports to the pool in which stage each thread is; sends all that this process sends."""

    def __init__(self, channel: Channel) -> None:
        """Answers what arrives over ``channel``."""
        self._channel = channel
        self._sending = threading.Lock()
        self._here = threading.local()

    @contextlib.contextmanager
    def in_stage(self, stage: str) -> Iterator[None]:
        """Reports that this thread is in a stage, and afterwards that it is where it was before."""
        outer = getattr(self._here, "stage", "")
        self._enter(stage)
        try:
            yield
        finally:
            self._enter(outer)

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message; several threads may."""
        with self._sending:
            self._channel.send(message)

    def _enter(self, stage: str) -> None:
        self._here.stage = stage
        self.send({STAGE: stage, "thread": threading.get_ident()})


class Replies(Protocol):
    """Answers the messages of the pool."""

    def reply(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers a message; with ``UNFIT`` as a key where another process must."""


def serve(
    argv: list[str], opened: Callable[[Handshake, StageReports], AbstractContextManager[Replies]]
) -> None:
    """Serves until the pool closes its end or sends SIGTERM."""
    faulthandler.enable()  # to the process's log, where the pool reads it
    signal.signal(signal.SIGTERM, _terminate)
    # Also where the command itself is killed.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    channel = Channel(socket.socket(fileno=int(argv[1])))
    with contextlib.suppress(_Terminated, ChannelClosed):
        start = Handshake.from_json(channel.receive())
        reports = StageReports(channel)
        with opened(start, reports) as replies:
            reports.send({"ready": True})
            try:
                reply: dict[str, Any] = {}
                while UNFIT not in reply:
                    reply = replies.reply(channel.receive())
                    reports.send(reply)
            finally:
                # From here on it ends its own processes, and must not be interrupted.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Terminated

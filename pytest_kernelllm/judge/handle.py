"""Sends requests to one worker and waits for its replies, within a deadline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_kernelllm.judge.shared.channel import (
    COMPILING,
    Channel,
    ChannelClosed,
    ChannelError,
    ChannelTimeout,
)

Released = Callable[[], contextlib.AbstractContextManager[None]]
"""Returns a context in which others may have the GPU."""


class WorkerDied(Exception):
    """A worker ended, hung or sent an invalid reply; the text says which."""

    def __init__(self, text: str, *, hung: bool = False, killed: bool = False) -> None:
        """``hung``: the worker missed the deadline. ``killed``: a signal ended it, which may have come from outside."""
        super().__init__(text)
        self.hung, self.killed = hung, killed


@dataclass(frozen=True)
class Exit:
    """How a worker's process ended."""

    text: str
    killed: bool = False
    """Whether a signal did it, or the end of its fork server."""


class WorkerHandle:
    """The judge's end of one worker.

    All requests share one time budget; the first failure ends the worker.
    """

    def __init__(
        self,
        channel: Channel,
        how_ended: Callable[[], Exit],
        seconds: float,
        released: Released = contextlib.nullcontext,
        on_full_disk: Callable[[], bool] = bool,
    ) -> None:
        """Created by ``ForkServer.worker``.

        Args:
            channel: connected to the worker.
            how_ended: returns how the process ended, once it has.
            seconds: how long all its replies may take together; the judge's own time does not count.
            released: entered while the worker compiles.
            on_full_disk: returns whether the disk was full meanwhile.
        """
        self._channel = channel
        self._how_ended = how_ended
        self._left = seconds
        self._released = released
        self.on_full_disk = on_full_disk

    def request(self, op: str, **fields: Any) -> dict[str, Any]:
        """Sends one request and waits for the reply.

        Raises:
            WorkerDied: no valid reply arrived; the worker cannot be used any more.
        """
        try:
            self._channel.send({"op": op, **fields})
            reply = self._receive()
            while COMPILING in reply:
                if reply[COMPILING]:
                    with self._released():
                        reply = self._receive()
                else:
                    self._channel.send({"op": "continue"})
                    reply = self._receive()
            return reply
        except ChannelTimeout:
            raise WorkerDied(
                f"it did not finish `{op}` before the deadline and was ended", hung=True
            ) from None
        except ChannelClosed:
            end = self._how_ended()
            raise WorkerDied(f"the process ended during `{op}`: {end.text}", killed=end.killed) from None
        except ChannelError as error:
            raise WorkerDied(f"its reply to `{op}` is invalid: {error}") from None

    def _receive(self) -> dict[str, Any]:
        start = time.monotonic()
        try:
            return self._channel.receive(max(self._left, 0.001))
        finally:
            self._left -= time.monotonic() - start

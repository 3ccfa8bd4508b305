"""Sends requests to one worker and waits for its replies, within a deadline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernelllm_judge.shared.channel import COMPILING, Channel, ChannelClosed, ChannelError, ChannelTimeout

RELEASES = 200
"""Announced compilations of a worker during which others may have the GPU: at the end of each it may wait for somebody who times."""

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
            how_ended: returns how the process ended, once it has.
            seconds: how long all its replies may take together; the judge's own time does not count.
            released: entered while the worker compiles.
            on_full_disk: returns whether the disk was full meanwhile.
        """
        self._channel = channel
        self._how_ended = how_ended
        self.left = seconds
        """How long its further replies may take together."""
        self._released = released
        self._releases = 0
        self.on_full_disk = on_full_disk

    def request(self, op: str, **fields: Any) -> dict[str, Any]:
        """Sends one request and waits for the reply.

        Raises:
            WorkerDied: no valid reply arrived; the worker cannot be used any more.
        """
        try:
            self._send({"op": op, **fields})
            reply = self._receive()
            while reply.get(COMPILING) is True:
                reply = self._while_compiling()
                if reply.get(COMPILING) is False:
                    self._send({"op": "continue"})
                    reply = self._receive()
            if COMPILING in reply:
                raise ChannelError("that a compilation begins or ends, out of turn")
            return reply
        except ChannelTimeout:
            raise WorkerDied(
                f"it did not finish `{op}` before the deadline and was ended", hung=True
            ) from None
        except ChannelClosed:
            end = self._how_ended()
            raise WorkerDied(f"the process ended during `{op}`: {end.text}", killed=end.killed) from None
        except ChannelError as error:
            raise WorkerDied(f"in place of a reply to `{op}` the worker wrote {error}") from None

    def _while_compiling(self) -> dict[str, Any]:
        """Lets others have the GPU until the worker's next message, and returns that."""
        self._releases += 1
        with self._released() if self._releases <= RELEASES else contextlib.nullcontext():
            reply = self._receive()
        if reply.get(COMPILING) is True:
            raise ChannelError("that a compilation begins, inside another")
        return reply

    def _send(self, message: dict[str, Any]) -> None:
        with self._timed():
            self._channel.send(message, self.left)

    def _receive(self) -> dict[str, Any]:
        with self._timed():
            return self._channel.receive(self.left)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Counts the block's time, of which some must be left."""
        if self.left <= 0:
            raise ChannelTimeout
        start = time.monotonic()
        try:
            yield
        finally:
            self.left -= time.monotonic() - start

"""Sends requests to one worker and waits for its replies, within a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_kernelllm.judge.shared.channel import Channel, ChannelClosed, ChannelError, ChannelTimeout


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

    def __init__(self, channel: Channel, how_ended: Callable[[], Exit], seconds: float) -> None:
        """Created by ``ForkServer.worker``.

        Args:
            channel: connected to the worker.
            how_ended: returns how the process ended, once it has.
            seconds: how long all its replies may take together; the judge's own time does not count.
        """
        self._channel = channel
        self._how_ended = how_ended
        self._left = seconds

    def request(self, op: str, **fields: Any) -> dict[str, Any]:
        """Sends one request and waits for the reply.

        Raises:
            WorkerDied: no valid reply arrived; the worker cannot be used any more.
        """
        start = time.monotonic()
        try:
            self._channel.send({"op": op, **fields})
            return self._channel.receive(max(self._left, 0.001))
        except ChannelTimeout:
            raise WorkerDied(
                f"it did not finish `{op}` before the deadline and was ended", hung=True
            ) from None
        except ChannelClosed:
            end = self._how_ended()
            raise WorkerDied(f"the process ended during `{op}`: {end.text}", killed=end.killed) from None
        except ChannelError as error:
            raise WorkerDied(f"its reply to `{op}` is invalid: {error}") from None
        finally:
            self._left -= time.monotonic() - start

"""One worker, as the judge speaks to it: an order, an answer, and a deadline for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pytest_kernelllm.judge.shared.channel import Channel, ChannelClosed, ChannelError, ChannelTimeout


class WorkerDied(Exception):
    """A worker ended, hung or spoke nonsense; the text says which, for people."""

    def __init__(self, text: str, *, hung: bool = False) -> None:
        """``hung``: it ran into the deadline."""
        super().__init__(text)
        self.hung = hung


class WorkerHandle:
    """One worker. Its calls share a number of seconds; the first failure ends the process."""

    def __init__(self, channel: Channel, exit_reason: Callable[[], str], seconds: float) -> None:
        """Used by ``ForkServer.worker`` only.

        Args:
            channel: leads to it.
            exit_reason: says so in words, once it has.
            seconds: those it may take in all, without the judge's own.
        """
        self._channel = channel
        self._exit_reason = exit_reason
        self._left = seconds

    def request(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one order and wait for its answer.

        Raises:
            WorkerDied: no (proper) answer came; the worker is gone afterwards.
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
            raise WorkerDied(f"the process ended during `{op}`: {self._exit_reason()}") from None
        except ChannelError as error:
            raise WorkerDied(f"it answered `{op}` with {error}") from None
        finally:
            self._left -= time.monotonic() - start

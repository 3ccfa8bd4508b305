"""Trying again: with growing pauses, as the server asks, and within bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pytest_kernelllm.models.endpoint.faults import Fault
from pytest_kernelllm.models.endpoint.pace import Bounds, Clock

T = TypeVar("T")


class Patience:
    """Retries for all requests to one server; says once in a while that it is waiting."""

    def __init__(self, bounds: Bounds, clock: Clock, progress: Callable[[str], None], hint: str = "") -> None:
        """Patience within ``bounds``.

        Args:
            bounds: how many tries, how long.
            clock: what waiting is measured by.
            progress: told when the server is on its way up.
            hint: what people should know when that happens for the first time.
        """
        self.bounds = bounds
        self.clock = clock
        self._progress = progress
        self._hint = hint
        self._last_word = float("-inf")

    async def __call__(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of ``attempt``, tried until it succeeds.

        Raises:
            Fault: one that another try does not help, or the last one when patience is at its end.
        """
        bounds, clock = self.bounds, self.clock
        started = clock.now()
        asleep_since: float | None = None
        tries = naps = 0
        while True:
            try:
                return await attempt()
            except Fault as found:
                fault = found
            if not fault.again:
                raise fault
            if fault.asleep:
                naps += 1
                asleep_since = clock.now() if asleep_since is None else asleep_since
                waited, most, pause = clock.now() - asleep_since, bounds.wake, bounds.pause(naps, clock)
            else:
                tries += 1
                asleep_since, naps = None, 0
                waited, most, pause = clock.now() - started, bounds.total, bounds.pause(tries, clock)
                if tries >= bounds.tries:
                    raise fault.given_up(f"{tries} tries")
            asked = ""
            if fault.pause is not None:
                pause, asked = fault.pause, f"it asks for a pause of {fault.pause:.0f} s, "
            if waited + pause > most:
                raise fault.given_up(f"{asked}given up after {waited:.0f} of at most {most:.0f} s")
            if fault.asleep:
                self._say(f"The endpoint {fault.reason}: waited {waited:.0f} of at most {most:.0f} s.")
                started += pause
            await clock.sleep(pause)

    def _say(self, line: str) -> None:
        # Many requests wait at once; one line for all of them will do.
        if self.clock.now() - self._last_word >= self.bounds.longest_pause:
            self._last_word = self.clock.now()
            self._progress(line + self._hint)
            self._hint = ""

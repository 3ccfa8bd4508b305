"""Retries failed requests: with growing pauses, as the server asks, and within limits."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pytest_kernelllm.web.faults import Fault

T = TypeVar("T")


class AsyncClock(Protocol):
    """The clock and the random numbers that retries use; tests replace them."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""

    def chance(self) -> float:
        """A number in [0, 1), so that many clients do not retry at the same moment."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the machine started; never turned back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits while other requests go on."""
        await asyncio.sleep(seconds)

    def chance(self) -> float:
        """A random number in [0, 1)."""
        return random.random()


@dataclass(frozen=True)
class RequestLimits:
    """RequestLimits of one client; seconds, except for ``tries``."""

    tries: int = 5
    """How often one request is sent before it is given up."""
    total: float = 900.0
    """Seconds after which no request is retried."""
    wake: float = 600.0
    """A server that is starting (503) is retried for so long."""
    first_pause: float = 0.5
    """Before the second try; it doubles before each further one."""
    longest_pause: float = 15.0
    connect: float = 10.0
    """Seconds for a connection to open."""
    idle: float = 300.0
    """A server that sends nothing for so long is given up. The first token of the last of many queued
    requests may take minutes."""

    def pause(self, tries: int, clock: AsyncClock) -> float:
        """Seconds to wait after that many failed tries: at least half of the pause, the rest at random."""
        return min(self.first_pause * 2.0 ** (tries - 1), self.longest_pause) * (0.5 + 0.5 * clock.chance())


class Retry:
    """Retries for all requests to one server; reports from time to time what it waits for."""

    def __init__(
        self,
        limits: RequestLimits,
        clock: AsyncClock,
        waiting: Callable[[str], None] = lambda clause: None,
        hint: str = "",
    ) -> None:
        """Create the retries.

        Args:
            waiting: called from time to time before a pause, with a clause that begins with a verb: the server is
                starting up, or failed for a passing reason.
            hint: added to the first clause about starting up.
        """
        self.limits = limits
        self.clock = clock
        self._waiting = waiting
        self._hint = hint
        self._last_report = float("-inf")

    async def __call__(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Call ``attempt`` until it succeeds, and return its result.

        Raises:
            Fault: one that is not retryable, or the last one when a limit is reached.
        """
        limits, clock = self.limits, self.clock
        started = clock.now()
        starting_since: float | None = None
        tries = waits = 0
        while True:
            try:
                return await attempt()
            except Fault as found:
                fault = found
            if not fault.retryable:
                raise fault
            if fault.starting:
                waits += 1
                starting_since = clock.now() if starting_since is None else starting_since
                waited, most, pause = clock.now() - starting_since, limits.wake, limits.pause(waits, clock)
            else:
                tries += 1
                starting_since, waits = None, 0
                waited, most, pause = clock.now() - started, limits.total, limits.pause(tries, clock)
                if tries >= limits.tries:
                    raise fault.given_up(f"{tries} tries")
            asked = ""
            if fault.pause is not None:
                pause, asked = fault.pause, f"it asks for a pause of {fault.pause:.0f} s, "
            if waited + pause > most:
                raise fault.given_up(f"{asked}given up after {waited:.0f} of at most {most:.0f} s")
            if fault.starting:
                self._report(f"{fault.reason}: waited {waited:.0f} of at most {most:.0f} s.", starting=True)
                started += pause
            elif pause >= 1:
                self._report(f"{fault.reason}: try {tries + 1} of {limits.tries} follows in {pause:.0f} s.")
            await clock.sleep(pause)

    def _report(self, clause: str, *, starting: bool = False) -> None:
        # Many requests wait at once; one report for all of them is enough.
        if self.clock.now() - self._last_report >= self.limits.longest_pause:
            self._last_report = self.clock.now()
            self._waiting(clause + (self._hint if starting else ""))
            self._hint = "" if starting else self._hint

"""Time: how long is waited for what, and the clock that it is measured by."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Time passing, and chance; a test brings its own."""

    def now(self) -> float:
        """Seconds since some moment."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def chance(self) -> float:
        """A number in [0, 1), so that many clients do not come back at the same moment."""


class SystemClock:
    """The machine's."""

    def now(self) -> float:
        """Seconds since the machine's start; never turned back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait, and let other requests go on."""
        await asyncio.sleep(seconds)

    def chance(self) -> float:
        """A random number in [0, 1)."""
        return random.random()


@dataclass(frozen=True)
class Bounds:
    """How much patience there is. Seconds, but for ``tries``."""

    tries: int = 5
    """Requests made for one sample before it is given up."""
    total: float = 900.0
    """After so long nothing is tried again."""
    wake: float = 600.0
    """A server that says it is not ready (503) is asked again for so long."""
    first_pause: float = 0.5
    """Before the second try; twice as long before each further one."""
    longest_pause: float = 15.0
    connect: float = 10.0
    """For a connection to open."""
    idle: float = 300.0
    """A server that sends nothing for so long is given up. The first token of the last of many queued
    requests may well take minutes."""
    hub: float = 60.0
    """For an answer of Hugging Face's own service."""

    def pause(self, tries: int, clock: Clock) -> float:
        """How long to wait after that many tries in vain, at least half of it certain."""
        return min(self.first_pause * 2.0 ** (tries - 1), self.longest_pause) * (0.5 + 0.5 * clock.chance())

"""Measures what the seconds of a verdict are spent on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

WAITING = "waiting for the GPU"
"""The part in which others hold it."""


class Durations:
    """Adds up the seconds of named parts. Time inside an inner part does not count for the outer one."""

    def __init__(self) -> None:
        """Nothing is measured yet."""
        self.seconds: dict[str, float] = {}
        """By name, in the order of their first ends."""
        self._inside = [0.0]
        """For each open part, the seconds of the parts inside it."""

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A context whose time counts for ``name``. Not thread-safe."""
        start = time.perf_counter()
        self._inside.append(0.0)
        try:
            yield
        finally:
            whole = time.perf_counter() - start
            own = whole - self._inside.pop()
            self._inside[-1] += whole
            self.seconds[name] = self.seconds.get(name, 0.0) + own

    def add(self, name: str, seconds: float) -> None:
        """Adds seconds that were measured elsewhere, outside all parts."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def rounded(self) -> dict[str, float]:
        """Returns the seconds to the millisecond, the longest first."""
        longest = sorted(self.seconds.items(), key=lambda item: -item[1])
        return {name: round(seconds, 3) for name, seconds in longest}

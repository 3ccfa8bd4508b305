"""Works ahead: what is asked for next is begun before it is asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Pace:
    """How long works took, and how many are left."""

    took: tuple[float, ...]
    """Seconds of those that are done, in the order in which they were begun."""
    ages: tuple[float, ...]
    """Seconds since those that are under way were begun."""
    waiting: int
    """Number of those that are not begun."""
    elapsed: float
    """Seconds since the first was begun."""

    @property
    def seconds_left(self) -> float | None:
        """Returns about how long the rest will take; None where nothing is done yet.

        The latest half of those that are done tells how long one takes, because the first ones warm up what others find warm.
        As many are done side by side as were so far, on average.
        """
        if not self.took or self.elapsed <= 0:
            return None
        latest = self.took[len(self.took) // 2 :]
        mean = sum(latest) / len(latest)
        # Of one that takes longer than others did, nobody knows how much longer.
        rest = sum(max(mean - age, mean / 4) for age in self.ages) + mean * self.waiting
        side_by_side = (sum(self.took) + sum(self.ages)) / self.elapsed
        return rest / max(1.0, min(side_by_side, len(self.ages) + self.waiting))


class Ahead(Generic[K]):
    """Does each of several works once, in a thread of its own, and some of those that are expected ahead of time."""

    def __init__(self, work: Callable[[K], None], most: Callable[[], int]) -> None:
        """Prepares; work begins when it is announced."""
        self._work = work
        self._most = most
        self._expected: dict[K, None] = {}
        """In the order in which they will be asked for."""
        self._begun: dict[K, Future[None]] = {}
        self._times: dict[K, list[float]] = {}
        """When each was begun, and when it ended."""
        self._returned: set[K] = set()
        """Those that ``ended`` returned."""
        self._threads: list[threading.Thread] = []

    def expect(self, key: K) -> None:
        """States that a work will be asked for, after those that were stated before."""
        if key not in self._begun:
            self._expected[key] = None

    def wait_for(self, key: K) -> None:
        """Returns once a work is done. Not thread-safe."""
        self._begin(key)
        for other in list(self._expected)[: self._most()]:
            ahead = sum(not future.done() for begun, future in self._begun.items() if begun != key)
            if ahead < self._most():
                self._begin(other)
        self._begun[key].result()

    def ended(self, seconds: float) -> list[K] | None:
        """Returns works that ended and were not returned before; waits for one, at most so long. Begins others meanwhile.

        None: there is nothing left to wait for. Not thread-safe.
        """
        while self._expected and sum(not each.done() for each in self._begun.values()) <= self._most():
            self._begin(next(iter(self._expected)))
        left = {key: future for key, future in self._begun.items() if key not in self._returned}
        wait(left.values(), seconds, FIRST_COMPLETED)
        ended = [key for key, future in left.items() if future.done()]
        self._returned.update(ended)
        return ended if left else None

    def pace(self, since: float, counts: Callable[[K], bool]) -> Pace:
        """Returns the pace of works that count, as if none was begun before a time of ``time.monotonic``."""
        now = time.monotonic()
        times = [(own[:], counts(key)) for key, own in self._times.items()]
        took = tuple(
            max(0.0, own[1] - max(own[0], since)) for own, judged in times if len(own) > 1 and judged
        )
        ages = tuple(max(0.0, now - max(own[0], since)) for own, _ in times if len(own) == 1)
        begun = min((own[0] for own, _ in times), default=now)
        return Pace(took, ages, len(self._expected), now - max(begun, since))

    def join(self, seconds: float) -> None:
        """Waits for what was begun, at most so long."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _begin(self, key: K) -> None:
        self._expected.pop(key, None)
        if key in self._begun:
            return
        future = self._begun[key] = Future()
        self._times[key] = [time.monotonic()]
        # Daemons: a generator that hangs must not hold up a run that is interrupted.
        thread = threading.Thread(target=self._do, args=(key, future), name=f"{key}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _do(self, key: K, future: Future[None]) -> None:
        try:
            self._work(key)
        except BaseException as error:  # whoever waits gets it
            self._times[key].append(time.monotonic())
            future.set_exception(error)
        else:
            self._times[key].append(time.monotonic())
            future.set_result(None)

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
    """When works were begun and done, and how many are left. Times are ``time.monotonic``'s."""

    done: tuple[tuple[float, float], ...]
    """When each of those began and ended that tell how long one takes."""
    begun: tuple[float, ...]
    """When those began that are under way."""
    waiting: int
    """Number of those that are not begun."""
    now: float

    @property
    def seconds_left(self) -> float | None:
        """About how long the rest will take, if as many are done side by side as were so far; None: nobody can tell yet.

        Works that were begun before the first one ended take longer than others, because they find nothing warm. So they count
        only where no other one is left.
        """
        warm_from = min((end for _, end in self.done), default=self.now)
        warm = [(begin, end) for begin, end in self.done if begin >= warm_from]
        if not self.done or (self.waiting and not warm):
            return None
        took = [end - begin for begin, end in warm or self.done]
        latest = took[len(took) // 2 :]
        mean = sum(latest) / len(latest)
        ages = [self.now - begin for begin in self.begun]
        # Of one that takes longer than others did, nobody knows how much longer.
        rest = sum(max(mean - age, mean / 4) for age in ages) + mean * self.waiting
        worked = sum(end - begin for begin, end in self.done) + sum(ages)
        elapsed = self.now - min(begin for begin, _ in self.done)
        return rest / max(1.0, min(worked / max(elapsed, 0.001), len(ages) + self.waiting))


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

    def pace(self, counts: Callable[[K], bool]) -> Pace:
        """Returns the pace, by works that count."""
        times = [(list(own), counts(key)) for key, own in self._times.items()]
        done = tuple((own[0], own[1]) for own, known in times if len(own) > 1 and known)
        begun = tuple(own[0] for own, _ in times if len(own) == 1)
        return Pace(done, begun, len(self._expected), time.monotonic())

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

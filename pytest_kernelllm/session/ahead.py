"""Works ahead: what is asked for next is begun before it is asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Ahead(Generic[K]):
    """Does each of several works once, in a thread of its own, and some of those that are expected ahead of time."""

    def __init__(self, work: Callable[[K], None], most: Callable[[], int]) -> None:
        """Prepares; work begins when it is announced."""
        self._work = work
        self._most = most
        self._expected: dict[K, None] = {}
        """In the order in which they will be asked for."""
        self._begun: dict[K, Future[None]] = {}
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
        # Daemons: a generator that hangs must not hold up a run that is interrupted.
        thread = threading.Thread(target=self._do, args=(key, future), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _do(self, key: K, future: Future[None]) -> None:
        try:
            self._work(key)
        except BaseException as error:  # whoever waits gets it
            future.set_exception(error)
        else:
            future.set_result(None)

"""Does the same work for many things at once, in threads, and gives each result as soon as it is there."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(work: Callable[[T], R], items: Sequence[T], most: int) -> Iterator[tuple[T, R]]:
    """Yields each item with its result, as they are done. Items are begun in their order.

    Once the caller leaves, by an exception too, no other item is begun; those at work are not waited for.

    Raises:
        BaseException: what ``work`` raised for some item.
    """
    waiting = deque(items)
    done: queue.SimpleQueue[tuple[T, R | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        while True:
            try:
                item = waiting.popleft()
            except IndexError:
                return
            try:
                done.put((item, work(item), None))
            except BaseException as error:  # the caller gets it
                done.put((item, None, error))

    for _ in range(min(most, len(items))):
        # Daemons: work that hangs must not hold up a run that is interrupted.
        threading.Thread(target=run, daemon=True).start()
    try:
        for _ in items:
            item, result, error = done.get()
            if error is not None:
                raise error
            yield item, result  # type: ignore[misc]  # there is a result where there is no error
    finally:
        waiting.clear()

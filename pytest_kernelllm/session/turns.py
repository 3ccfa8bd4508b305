"""Takes turns on the GPUs: several threads judge, or one writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Lets several threads judge, or one write on the GPU on which they judge."""

    def __init__(self) -> None:
        """Nobody is at work."""
        self._changed = threading.Condition()
        self._judging = 0
        self._writing = False
        self._wanted = 0

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Waits until nobody writes or waits to, and holds writing up."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and not self._wanted)
            self._judging += 1
        try:
            yield
        finally:
            with self._changed:
                self._judging -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Waits until nobody judges, and holds judging up."""
        with self._changed:
            self._wanted += 1
            self._changed.wait_for(lambda: not self._writing and not self._judging)
            self._wanted -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()

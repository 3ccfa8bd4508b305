"""SIGTERM, which ends a cancelled CI job, does what Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Makes the first SIGTERM raise ``KeyboardInterrupt`` in the block; later ones must not keep it from closing."""
    if threading.current_thread() is not threading.main_thread():  # only there Python can
        yield
        return

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""Shows what a long command is doing."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from pytest_kernelllm.core.words import say

EVERY = 10.0
"""Seconds between two lines of a log, and before the first."""


@contextlib.contextmanager
def stages(first: str) -> Iterator[Callable[[str], None]]:
    """A context that gives what is called with each stage, in a few words, of which ``first`` is the first.

    On a terminal one line shows it; a log gets a line now and then, with the seconds so far.
    """
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status(first) as status:
            yield status.update
        return
    begun = last = time.monotonic()

    def report(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY:
            say(f"{now - begun:.0f} s: {text}")
            last = now

    yield report

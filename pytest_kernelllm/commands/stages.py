"""Shows what a long command is doing."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator

from pytest_kernelllm.core.words import say

EVERY = 30.0
"""Seconds after which a log gets a line though the stage is the same."""


@contextlib.contextmanager
def stages(first: str) -> Iterator[Callable[[str], None]]:
    """A context that gives what is called with each stage, in a few words, of which ``first`` is the first.

    On a terminal one line shows it; a log gets a line for each stage and every 30 s, with the seconds so far.
    """
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status(first) as status:
            yield status.update
        return
    begun = last = time.monotonic()
    stage = ""

    def report(text: str) -> None:
        nonlocal last, stage
        now, kind = time.monotonic(), re.sub(r"\d+", "", text)
        if kind != stage or now - last >= EVERY:
            say(f"{now - begun:.0f} s: {text}")
            last, stage = now, kind

    report(first)
    yield report

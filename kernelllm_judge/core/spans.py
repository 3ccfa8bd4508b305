"""Spans: what a process did, and when."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelllm_runtime.record import Record

JUDGING = "judging"
"""What a process does from the beginning of a verdict to its end."""

WRITTEN, SEARCHED, JUDGED = "being written", "being searched", "being judged"
"""What becomes of a target, as the command sees it that waits for other processes."""

SHORTEST = 0.01
"""Seconds below which a span is left out, unless it is a whole verdict: one has thousands of short parts."""

GAP = 0.001
"""Seconds between two spans of one kind below which they become one."""


@dataclass(frozen=True)
class Span(Record):
    """What one thread of a process did for a while. Spans of a thread lie inside each other, or apart."""

    process: str
    """The process's name, which the next process in its slot has as well: ``pytest``, ``judge 2``, ``gw1 writer 1``."""
    thread: str
    what: str
    """In a word or two: ``judging``, ``calls``."""
    target: str
    """``Target.id``; empty for what concerns no target."""
    begin: float
    """Seconds since the epoch, as is the end."""
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin


class Recorder:
    """Collects the spans of a process. Thread-safe."""

    def __init__(self, process: str = "", *, detailed: bool = True) -> None:
        """Nothing is recorded without a name, and whole verdicts only where no details are wanted."""
        self._process = process
        self._detailed = detailed
        self._lock = threading.Lock()
        self._spans: list[Span] = []
        self._open: dict[object, tuple[str, str]] = {}

    @property
    def doing(self) -> list[tuple[str, str]]:
        """What is being done, and for which target, the first that was begun first."""
        with self._lock:
            return list(self._open.values())

    @contextlib.contextmanager
    def span(self, what: str, target: str = "") -> Iterator[None]:
        """Records what this thread does in the block."""
        if not self._process:
            yield
            return
        key, begin = object(), time.time()
        with self._lock:
            self._open[key] = what, target
        try:
            yield
        finally:
            with self._lock:
                del self._open[key]
            self.add(what, target, begin, time.time())

    def add(self, what: str, target: str, begin: float, end: float) -> None:
        """Records what this thread did."""
        span = Span(self._process, threading.current_thread().name, what, target, begin, end)
        with self._lock:
            last = self._spans[-1] if self._spans else None
            if last and replace(span, begin=last.begin, end=last.end) == last and begin - last.end < GAP:
                self._spans[-1] = replace(last, end=end)
            elif span.seconds >= GAP:
                self._extend([span])

    def extend(self, spans: Sequence[Span]) -> None:
        """Adds what other processes recorded."""
        with self._lock:
            self._extend(spans)

    def _extend(self, spans: Sequence[Span]) -> None:
        self._spans += [span for span in spans if self._detailed or span.what == JUDGING]

    @property
    def spans(self) -> tuple[Span, ...]:
        """What was recorded so far, without what is too short."""
        with self._lock:
            return tuple(span for span in self._spans if span.seconds >= SHORTEST or span.what == JUDGING)

    def take(self) -> tuple[Span, ...]:
        """Returns what was recorded since the last call. Not while other threads record."""
        spans, self._spans = self.spans, []
        return spans


def process_started() -> float:
    """Returns when this process was started, in seconds since the epoch."""
    ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")

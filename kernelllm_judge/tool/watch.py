"""Waits until files are saved."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PAUSE = 0.2
"""Seconds between two looks. A file counts as saved when two looks in a row find it equal."""


def saves(files: Sequence[Path]) -> Iterator[None]:
    """Yields once at the start, and each time that the content of a file has changed and stays. Never ends by itself.

    Nothing is yielded while a file is absent: some editors save by replacing.
    """
    seen: list[str] = []
    looked: list[tuple[int, int]] = []
    stamps: list[tuple[int, int]] = []
    while True:
        before, stamps = stamps, _stamps(files)
        if stamps and stamps == before and stamps != looked and (found := _hashes(files)):
            looked = stamps
            if found != seen:
                seen = found
                yield
        time.sleep(PAUSE)


def _stamps(files: Sequence[Path]) -> list[tuple[int, int]]:
    try:
        return [(found.st_mtime_ns, found.st_size) for found in map(Path.stat, files)]
    except OSError:
        return []


def _hashes(files: Sequence[Path]) -> list[str]:
    try:
        return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    except OSError:
        return []

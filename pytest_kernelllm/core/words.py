"""Words for people: numbers, and sentences on standard error."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path


def counted(number: int, noun: str) -> str:
    """Returns ``1 verdict``, ``1,234 verdicts``, ``2 patches``."""
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{number:,} {noun}{ending}"


def command(*parts: object) -> str:
    """Returns a command in backquotes, as a shell takes it: with blanks and brackets quoted."""
    return f"`{shlex.join(map(str, parts))}`"


def from_here(root: Path, path: str) -> str:
    """Converts a path, or an id that begins with one, from the project root to the working directory, where it is pasted."""
    file, colons, rest = path.partition("::")
    return Path(os.path.relpath(root / file)).as_posix() + colons + rest


def say(*sentences: object) -> None:
    """Writes sentences to standard error, apart from what another program may read."""
    for sentence in sentences:
        print(f"kernelllm: {sentence}", file=sys.stderr, flush=True)

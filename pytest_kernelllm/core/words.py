"""Words for people: numbers, and sentences on standard error."""

from __future__ import annotations

import sys


def counted(number: int, noun: str) -> str:
    """Returns ``1 verdict``, ``1,234 verdicts``, ``2 patches``."""
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{number:,} {noun}{ending}"


def say(*sentences: object) -> None:
    """Writes sentences to standard error, apart from what another program may read."""
    for sentence in sentences:
        print(f"kernelllm: {sentence}", file=sys.stderr, flush=True)

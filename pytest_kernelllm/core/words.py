"""Numbers in words, for people."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Returns ``1 verdict``, ``1,234 verdicts``, ``2 patches``."""
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{number:,} {noun}{ending}"

"""What keeps a benchmark from being run."""

from __future__ import annotations


class BenchError(RuntimeError):
    """Nothing can be measured, or drawn, like this; one sentence."""

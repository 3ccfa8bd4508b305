"""The error that keeps a benchmark from being run."""

from __future__ import annotations


class BenchError(RuntimeError):
    """A benchmark cannot be run; one sentence."""

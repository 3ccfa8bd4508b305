"""Errors of the ranking, for users."""

from __future__ import annotations


class RankError(Exception):
    """Raised if a model cannot be built, run or ranked; one sentence that says what to do."""

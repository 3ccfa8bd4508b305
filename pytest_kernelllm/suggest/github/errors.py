"""What stops a suggestion; each is one sentence for people."""

from __future__ import annotations


class Refused(Exception):
    """What was handed over is not what a verify job writes, or the job is set up unsafely."""


class GitError(Exception):
    """A git command failed. ``said`` is what git wrote, without secrets."""

    def __init__(self, what: str, said: str) -> None:
        """``what`` was tried, and what git said."""
        super().__init__(f"{what}: {said}" if said else what)
        self.said = said


class ApiError(Exception):
    """GitHub answered no. ``status`` is the HTTP status; 0 where there was no answer."""

    def __init__(self, status: int, sentence: str) -> None:
        """Say what was asked and what GitHub answered, without secrets."""
        super().__init__(sentence)
        self.status = status

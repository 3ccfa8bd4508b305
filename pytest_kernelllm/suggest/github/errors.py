"""Errors that stop a suggestion; the text of each is one sentence for people."""

from __future__ import annotations

from kernelllm_judge.core.shorten import whole


class SuggestionRefused(Exception):
    """The artifact is not what a verify job writes, or the job is set up unsafely."""


class GitError(Exception):
    """A git command failed. ``output`` is git's, without secrets."""

    def __init__(self, what: str, output: str) -> None:
        """Combine ``what`` was tried with git's output."""
        super().__init__(f"{what}: {output}" if output else what)
        self.output = output


class ApiError(Exception):
    """A request to GitHub failed. ``status`` is the HTTP status; 0 if there was no final response."""

    def __init__(self, status: int, sentence: str) -> None:
        """Take a sentence that states request and response, without secrets."""
        super().__init__(sentence)
        self.status = status


def shown(text: str) -> str:
    """A text that others wrote, on one line, without anything invisible, and not too long."""
    plain = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return whole(plain)

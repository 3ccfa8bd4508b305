"""The error of writing a prompt."""

from __future__ import annotations


class PromptError(Exception):
    """Raised if a target has no prompt; one sentence names the target, what cannot be shown and what to do."""

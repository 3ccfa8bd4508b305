"""The errors of writing a prompt."""

from __future__ import annotations


class PromptError(Exception):
    """Raised if a target has no prompt; one sentence names the target, what cannot be copied and what to do."""


class NotPortable(Exception):
    """Raised if something cannot be copied; ``standalone`` adds the target's name and raises ``PromptError``."""

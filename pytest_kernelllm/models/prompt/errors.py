"""What can go wrong on the way from a class to a prompt."""

from __future__ import annotations


class PromptError(Exception):
    """No prompt can be made of a target; one sentence that names it, what cannot be carried and what to do."""


class Refused(Exception):
    """Something cannot be carried; ``standalone`` puts the target's name in front and raises ``PromptError``."""

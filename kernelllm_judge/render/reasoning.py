"""Separates what a model thought from what it answered, where a server leaves both in one text."""

from __future__ import annotations

MARKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
"""Between which thoughts stand, in several models' chat templates."""


def split_reasoning(text: str) -> tuple[str, str]:
    """Returns what a model thought, and what it answered.

    Thoughts stand at the beginning, between two of ``MARKS``; some chat templates write the first of the two themselves.
    Thoughts without an end are cut off: there is no answer.
    """
    for begin, end in MARKS:
        thoughts, found, answer = text.partition(end)
        if thoughts.lstrip().startswith(begin) or (found and begin not in thoughts):
            return thoughts.lstrip().removeprefix(begin).strip(), answer.lstrip()
    return "", text

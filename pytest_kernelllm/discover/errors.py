"""Errors for people: one sentence, naming the file, the class and the fix."""

from __future__ import annotations

import traceback
from pathlib import Path


class TargetError(Exception):
    """A target cannot be imported, built or called; the text is one sentence that says what to do."""


def in_one_line(error: BaseException, path: Path | None = None) -> str:
    """``ValueError: bad size (line 12)``: an exception of the user's code, with the line in ``path`` it passed."""
    text = " ".join(str(error).split())
    if len(text) > 300:
        text = text[:299] + "…"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if path is not None and frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
    return type(error).__name__ + (f": {text}" if text else "") + (f" (line {line})" if line else "")

"""Describes errors of a candidate for the judge."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

from triton.runtime.errors import InterpreterError

from kernelllm_judge.core.shorten import LONGEST, whole

_POINTED = re.compile(r"at \d+:\d+:\n(?:.*\n)?\s*([^\n]+)\n *\^(.*)", re.DOTALL)
"""A message of Triton's compiler: the kernel up to a line, a mark below it, and the reason."""


def describe(error: BaseException, directory: Path) -> dict[str, Any]:
    """Returns an error's type and message, the line of the candidate that it came from, and whether a kernel was interpreted."""
    interpreted, frames = False, traceback.extract_tb(error.__traceback__)
    while isinstance(error, InterpreterError) and error.__cause__ is not None:
        error, interpreted = error.__cause__, True
        frames += traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).parent == directory]
    # Without CUDA's generic advice.
    text = _compiler_words(error) or str(error).split("\nSearch for `cuda")[0]
    described = {
        "type": type(error).__name__,
        "message": whole(text, 2 * LONGEST),
        "line": [None, *lines][-1],
    }
    return described | ({"interpreted": True} if interpreted else {})


def _compiler_words(error: BaseException) -> str:
    """Returns why Triton's compiler refused a kernel, and the line that it points at; empty for other errors.

    Its message repeats the kernel up to a line with ``^``; where the kernel called a function, the reason is in the cause.
    """
    if (pointed := _POINTED.fullmatch(str(error))) is None:
        return ""
    line, words = pointed[1], pointed[2].strip()
    if not words and error.__cause__ is not None:
        return _compiler_words(error.__cause__) or f"{error.__cause__} at `{line}`"
    return f"{words} at `{line}`"

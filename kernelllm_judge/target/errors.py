"""Errors for users: one sentence that names the file, the class and the fix."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import kernelllm_runtime
from kernelllm_judge.core.shorten import whole


class TargetError(Exception):
    """Raised if a target cannot be imported, built or called; the message says what to do."""


def in_one_line(error: BaseException) -> str:
    """Describes an exception from the user's code: ``ValueError: bad size (layers.py, line 12)``."""
    text = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {text}"  # its text names file and line
    text = whole(text)
    lines = [f for f in traceback.extract_tb(error.__traceback__) if _is_the_users(f.filename)]
    place = f" ({Path(lines[-1].filename).name}, line {lines[-1].lineno})" if lines else ""
    return type(error).__name__ + (f": {text}" if text else "") + place


def _is_the_users(filename: str) -> bool:
    path, home = Path(filename), Path(__file__).parents[1]
    others = (
        home,
        home.with_name("pytest_kernelllm"),
        Path(kernelllm_runtime.__file__).parent,
        Path(sysconfig.get_path("stdlib")),
        Path(sysconfig.get_path("purelib")),
    )
    return not filename.startswith("<") and not any(path.is_relative_to(folder) for folder in others)

"""The error of rendering a completion."""

from __future__ import annotations

import traceback
from pathlib import Path

from kernelllm_judge.target.errors import in_one_line


class RenderError(ValueError):
    """Raised anywhere in this folder if a completion cannot be rendered; one sentence names the attribute, the operation or the line."""


def unexpected(who: str, what: str, error: BaseException) -> str:
    """Describes a bug of ours with its place: ``The renderer failed on this completion: TypeError: … (emit.py, line 9); …``"""
    place = traceback.extract_tb(error.__traceback__)[-1:]
    at = "".join(f" ({Path(frame.filename).name}, line {frame.lineno}, in {frame.name})" for frame in place)
    return f"{who} failed on this {what}: {in_one_line(error)}{at}; please report it."

"""Tells a kernel module from an answer with a ``ModelNew``."""

from __future__ import annotations

import re
from typing import Literal


def format_of(text: str) -> Literal["modelnew", "kernel_module"]:
    """Returns the format of a file: a kernel module has a top-level ``forward`` and no ``ModelNew``."""
    found = set(re.findall(r"^(?:def|class) (forward|ModelNew)\b", text, re.MULTILINE))
    return "kernel_module" if found == {"forward"} else "modelnew"

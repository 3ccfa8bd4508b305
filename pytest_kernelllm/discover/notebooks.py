"""Finds notebooks that use the marker: what they define cannot be a target, because no Python file holds it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kernelllm_runtime.source.marks import MARKER

MOST_FILES = 10_000
"""Entries of folders that are looked at, to bound the time."""


def marked_notebooks(root: Path) -> list[str]:
    """Returns the notebooks below a folder that mention the marker, relative to it; hidden folders are left out."""
    found: list[str] = []
    left = MOST_FILES
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        left -= len(folders) + len(files)
        for name in sorted(files):
            path = Path(folder, name)
            if path.suffix == ".ipynb":
                with contextlib.suppress(OSError):
                    if MARKER.encode() in path.read_bytes():
                        found.append(path.relative_to(root).as_posix())
        if left < 0:
            break
    return found

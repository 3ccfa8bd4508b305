"""Names the renderer by its own text: what an earlier text made is made anew, and nobody has to raise a number.

Apart, so that asking for it imports nothing. No verdict depends on it: what renders to the same kernel keeps its verdict.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


@functools.cache
def code_version(*folders: Path) -> str:
    """Returns 16 hex digits that name the text of all modules in these folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            digest.update(f"{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def render_version() -> str:
    """Returns the version of the renderer and of the records that it works on."""
    here = Path(__file__).parent
    return code_version(here, here.parent / "core")

"""Selects the changed files that may concern kernels. It imports next to nothing at first: most commits end here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

HEADER = b"# Triton kernel for "
"""First bytes of a generated kernel module."""

_MARKER = b"triton_candidate"
_PARTS = (b"SUPPORTS", b"def forward(", b"triton")
"""Every kernel module contains them, also without its header."""


def concerned(files: Iterable[Path]) -> list[Path]:
    """Returns the files that may contain a marker, or may be a kernel module."""
    return [file for file in files if _MARKER in (content := content_of(file)) or like_kernel(content)]


def removed() -> list[Path]:
    """Returns the Python files that the commit, or the push, removes or renames."""
    import subprocess

    start, end = (os.environ.get(f"PRE_COMMIT_{which}_REF") for which in ("FROM", "TO"))
    what = [f"{start}...{end}"] if start and end else ["--cached"]
    command = ["git", "diff", "--name-only", "--no-renames", "--diff-filter=D", "--relative", "-z", *what]
    done = subprocess.run([*command, "--", "*.py"], capture_output=True, check=False)
    return [Path(os.fsdecode(name)).absolute() for name in done.stdout.split(b"\0") if name]


def naming(gone: Iterable[Path], files: Iterable[Path]) -> list[Path]:
    """Returns those of some files whose markers may name a kernel that is gone, or one of its packages."""
    names = {(file.parent if file.name == "__init__.py" else file).stem.encode() for file in gone}
    if not names:
        return []
    adopted = re.compile(rb"""kernel\s*=\s*["'][\w.]*\b(%s)\b""" % b"|".join(map(re.escape, sorted(names))))
    return [file for file in files if _MARKER in (text := content_of(file)) and adopted.search(text)]


def like_kernel(content: bytes) -> bool:
    """Returns whether a file may be a kernel module; hand-written ones that nobody adopted count as well."""
    return content.startswith(HEADER) or all(part in content for part in _PARTS)


def content_of(file: Path) -> bytes:
    """Returns the file's bytes; empty if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError:
        return b""

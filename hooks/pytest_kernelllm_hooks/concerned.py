"""Selects the changed files that may concern kernels. It imports next to nothing: most commits end here."""

from __future__ import annotations

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


def like_kernel(content: bytes) -> bool:
    """Returns whether a file may be a kernel module; hand-written ones that nobody adopted count as well."""
    return content.startswith(HEADER) or all(part in content for part in _PARTS)


def content_of(file: Path) -> bytes:
    """Returns the file's bytes; empty if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError:
        return b""

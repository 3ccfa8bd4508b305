"""Which of the changed files have to do with kernels at all. Imports nothing: most commits end here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

HEADER = b"# Triton kernel for "
"""How a generated kernel module begins."""

_MARKER = b"triton_candidate"
_PARTS = (b"SUPPORTS", b"def forward(", b"triton")
"""What every kernel module holds, also one that has lost its header."""


def concerned(files: Iterable[Path]) -> list[Path]:
    """Those that may hold a marker, or may be a kernel module."""
    return [file for file in files if _MARKER in (content := content_of(file)) or like_kernel(content)]


def like_kernel(content: bytes) -> bool:
    """Whether a file begins or reads like a kernel module; hand-written ones that nobody adopted do, too."""
    return content.startswith(HEADER) or all(part in content for part in _PARTS)


def content_of(file: Path) -> bytes:
    """The file's bytes; none for one that is gone."""
    try:
        return file.read_bytes()
    except OSError:
        return b""

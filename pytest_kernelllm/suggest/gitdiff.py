"""Writes changed files as a patch in git's format, byte for byte."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

Change = tuple[bytes | None, bytes]
"""A file's bytes before (None: it did not exist) and after."""

_ESCAPES = {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r", ord('"'): '\\"', ord("\\"): "\\\\"}


def git_patch(changes: Mapping[str, Change], prefix: str = "") -> bytes:
    """Returns a patch for ``git apply``.

    Args:
        prefix: path from the top of the work tree to the folder that the paths are relative to: ``""`` or ``"sub/"``.
    """
    return b"".join(_file_patch(prefix + path, *change) for path, change in sorted(changes.items()))


def _file_patch(path: str, old: bytes | None, new: bytes) -> bytes:
    before, after = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    header = b"diff --git %s %s\n" % (before, after)
    if old is None:
        header += b"new file mode 100644\n"
    # Git ends a name that contains spaces with a tab.
    tab = b"\t" if " " in path else b""
    hunks = list(
        difflib.diff_bytes(
            difflib.unified_diff,
            _lines(old or b""),
            _lines(new),
            b"/dev/null" if old is None else before + tab,
            after + tab,
            lineterm=b"\n",
        )
    )
    return header + b"".join(_ended(line) for line in hunks)


def _lines(content: bytes) -> list[bytes]:
    """Splits lines as git does: only a line feed ends one."""
    parts = content.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


def _quoted(path: str) -> bytes:
    """A path as git writes it: quoted and escaped if it contains anything but plain characters."""
    raw = path.encode("utf-8", "surrogateescape")
    escaped = "".join(
        _ESCAPES.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in raw
    )
    return (f'"{escaped}"' if escaped.encode() != raw else path).encode()

"""One file of the store: JSON that carries its own checksum and is replaced whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

FORMAT = 1
"""Version of the envelope around every entry; entries of any other version count as damaged."""


class DamagedEntry(ValueError):
    """The file is not a whole entry of the wanted kind; the text says what is wrong with it."""


def digest(*parts: str) -> str:
    """64 hex digits that name these parts, in this order."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def write_atomic(path: Path, content: bytes, mode: int | None = None) -> None:
    """Put ``content`` at ``path`` so that a reader, or a kill at any moment, sees the old file or the new.

    Args:
        path: in a folder that exists.
        content: the whole file.
        mode: permission bits of the new file; None leaves it to the umask.

    Raises:
        OSError: the file cannot be written; what was there stays.
    """
    temporary = path.with_name(f".{path.name[:100]}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def encode(kind: str, body: Any) -> bytes:
    """The bytes of an entry of this kind."""
    checksum = digest(kind, json.dumps(body, sort_keys=True))
    return (
        json.dumps({"format": FORMAT, "kind": kind, "checksum": checksum, "body": body}, indent=1).encode()
        + b"\n"
    )


def decode(kind: str, content: bytes) -> Any:
    """The body of an entry.

    Raises:
        DamagedEntry: truncated, altered, of another kind or of another format.
    """
    try:
        entry = json.loads(content)
    except (ValueError, RecursionError):
        raise DamagedEntry("it is not whole JSON") from None
    if not isinstance(entry, dict) or set(entry) != {"format", "kind", "checksum", "body"}:
        raise DamagedEntry("it is not an entry of the store")
    if entry["format"] != FORMAT:
        raise DamagedEntry(f"its format is {entry['format']!r}, this version reads {FORMAT}")
    if entry["kind"] != kind:
        raise DamagedEntry(f"it holds a {entry['kind']}, not a {kind}")
    if entry["checksum"] != digest(kind, json.dumps(entry["body"], sort_keys=True)):
        raise DamagedEntry("its checksum does not match")
    return entry["body"]

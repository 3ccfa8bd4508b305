"""One file of the store: JSON that carries its own checksum, may be signed, and is replaced whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from pytest_kernelllm.store.signing import StoreKey

FORMAT = 5
"""Version of the entries that are written."""

READABLE = (4, FORMAT)
"""Versions of the entries that are read."""


class DamagedEntry(ValueError):
    """The file is not a whole entry of the expected kind; the text says what is wrong with it."""


class OtherVersion(ValueError):
    """Another version of pytest-kernelllm wrote the entry, in a form that this one does not know."""


class UnsignedEntry(ValueError):
    """The entry is whole, but the key did not sign it, or signed it for another place."""


def digest(*parts: str) -> str:
    """Returns 64 hex digits that name these parts, in this order."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def write_atomic(path: Path, content: bytes, mode: int | None = None) -> None:
    """Writes ``content`` to ``path`` so that a reader, or a kill at any moment, leaves the old file or the new.

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


def encode(kind: str, body: Any, name: str = "", key: StoreKey | None = None) -> bytes:
    """Returns the bytes of an entry of this kind."""
    checksum = _checksum(kind, body)
    entry = {"format": FORMAT, "kind": kind, "checksum": checksum, "body": body}
    if key is not None:
        entry["signature"] = key.sign(_signed_text(FORMAT, name, checksum))
    return json.dumps(entry, indent=1).encode() + b"\n"


def decode(kind: str, content: bytes, name: str = "", key: StoreKey | None = None) -> Any:
    """Returns the body of an entry; without a key a signature is not looked at.

    Raises:
        DamagedEntry: it is truncated, altered or of another kind.
        OtherVersion: its format is none of ``READABLE``.
        UnsignedEntry: there is a key, and it did not sign this entry for this place.
    """
    try:
        entry = json.loads(content)
        checksum = _checksum(kind, entry["body"])
    except (ValueError, RecursionError):
        raise DamagedEntry("it is not whole JSON") from None
    except (KeyError, TypeError):
        raise DamagedEntry("it is not an entry of the store") from None
    if set(entry) - {"signature"} != {"format", "kind", "checksum", "body"}:
        raise DamagedEntry("it is not an entry of the store")
    if entry["format"] not in READABLE:
        raise OtherVersion
    if entry["kind"] != kind:
        raise DamagedEntry(f"it holds a {entry['kind']}, not a {kind}")
    if entry["checksum"] != checksum:
        raise DamagedEntry("its checksum does not match")
    if key is not None and not key.signed(
        _signed_text(entry["format"], name, checksum), entry.get("signature")
    ):
        raise UnsignedEntry
    return entry["body"]


def _checksum(kind: str, body: Any) -> str:
    return digest(kind, json.dumps(body, sort_keys=True))


def _signed_text(version: int, name: str, checksum: str) -> str:
    """What a signature covers: by the checksum, kind and body as well."""
    return json.dumps(["pytest-kernelllm store", version, name, checksum])

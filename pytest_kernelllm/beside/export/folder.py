"""Writes an export to disk, leaving other files in the folder alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kernelllm_judge.core.errors import SessionError
from pytest_kernelllm.store.entry import write_atomic

SUMS = "SHA256SUMS"

_LINE = re.compile(r"([0-9a-f]{64})  ([\w.-]+(?:/[\w.-]+)*)")


class ExportError(SessionError):
    """A folder cannot be written, or is not an export; one sentence."""


def sums(files: Mapping[str, bytes]) -> bytes:
    """Returns the text of ``SHA256SUMS`` for these files."""
    lines = (f"{hashlib.sha256(content).hexdigest()}  {path}\n" for path, content in sorted(files.items()))
    return "".join(lines).encode()


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes an export and replaces an earlier one; other files in the folder stay.

    Args:
        folder: created if it does not exist; it may be the clone of a repository.
        files: by path. Their checksums are written last, so an incomplete export has none.

    Raises:
        ExportError: a file in the way is not from an earlier export, or the folder cannot be written.
    """
    try:
        before = _listed(folder) if (folder / SUMS).is_file() else {}
        for name in files:
            if (folder / name).exists() and _digest(folder, name) != before.get(name):
                raise ExportError(
                    f"{folder / name} would be overwritten, but is not from an export or was changed since; move it away."
                )
        (folder / SUMS).unlink(missing_ok=True)
        for name in before.keys() - files.keys():
            (folder / name).unlink(missing_ok=True)
        for name, content in (*files.items(), (SUMS, sums(files))):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / name, content)
    except OSError as error:
        raise ExportError(f"{folder}: the export cannot be written ({error}).") from None


def _listed(folder: Path) -> dict[str, str]:
    """Digests by path, from the checksums.

    Raises:
        ExportError: a line was not written by an export, or names a path outside the folder.
    """
    listed = {}
    for line in (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines():
        match = _LINE.fullmatch(line)
        if match is None or ".." in PurePosixPath(match[2]).parts:
            raise ExportError(f"{folder / SUMS} has an invalid line: {line[:80]!r}.")
        listed[match[2]] = match[1]
    return listed


def _digest(folder: Path, name: str) -> str:
    """SHA-256 of a file; empty if it does not exist, is not a plain file, or is reached through a link."""
    path = folder / name
    ways = [folder.joinpath(*PurePosixPath(name).parts[:n]) for n in range(1, name.count("/") + 2)]
    if any(way.is_symlink() for way in ways) or not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()

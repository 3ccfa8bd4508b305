"""Scratch folders: removes them, whatever a candidate has put there, and tells whether their disk is full."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

FULL, FEW = 1 << 25, 64
"""Bytes and files: with less room compilers fail, or write half a file, without saying why."""


def is_full(folder: Path) -> bool:
    """Returns whether there is hardly any room on the disk of a folder."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    # Some file systems count no blocks or no files: they have 0 of 0.
    room, files = disk.f_bavail * disk.f_frsize, disk.f_favail
    return (disk.f_blocks > 0 and room < FULL) or (disk.f_files > 0 and files < FEW)


def remove(folder: Path) -> None:
    """Removes a folder with its contents; what cannot be removed stays, without an error.

    Nested folders are first moved to the top one by one, so that neither depth nor path length is a problem.
    Symbolic links are removed, not followed.
    """
    waiting = [folder / name for name in _names(folder)]
    while waiting:
        path = waiting.pop()
        try:
            is_folder = path.is_dir() and not path.is_symlink()
            if not is_folder:
                path.unlink()
                continue
            path.chmod(0o700)
            for name in _names(path):
                inner = path / name
                if inner.is_dir() and not inner.is_symlink():
                    inner.chmod(0o700)
                    waiting.append(inner.rename(folder / secrets.token_hex(16)))
                else:
                    inner.unlink()
            path.rmdir()
        except OSError:
            continue
    with contextlib.suppress(OSError):
        folder.rmdir()


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)  # noqa: PTH208  (names, whatever they hold)
    return []

"""Changes files of the project together: all of them or none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_kernelllm.store.entry import write_atomic

FileChange = tuple[bytes | None, bytes | None]
"""A file before and after (None: there is none)."""


class PatchError(RuntimeError):
    """A change cannot be made, and nothing was changed; one sentence with the reason and what to do."""


def content(path: Path) -> bytes | None:
    """Returns the bytes of a file; None if it does not exist.

    Raises:
        PatchError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PatchError(f"{path} cannot be read ({error.strerror}); fix that and run again.") from None


def change_files(root: Path, changes: Mapping[str, FileChange]) -> None:
    """Writes and deletes files, and undoes what was done if one of them fails.

    New files come first and deletions last, so that no marker names a missing kernel even if the process is killed.

    Args:
        changes: by POSIX path relative to ``root``; existing permission bits and links are kept.

    Raises:
        PatchError: a file cannot be written.
    """
    done: list[str] = []
    made: list[Path] = []
    try:
        for path in sorted(
            changes, key=lambda path: (changes[path][0] is not None, changes[path][1] is None)
        ):
            made += [folder for folder in reversed((root / path).parents) if not folder.exists()]
            done.append(path)
            _put(root / path, changes[path][1])
    except BaseException as error:
        for path in reversed(done):
            with contextlib.suppress(OSError):
                _put(root / path, changes[path][0])
        _remove_empty(reversed(made))
        if isinstance(error, OSError):
            raise PatchError(
                f"{path} cannot be written ({error.strerror}); nothing was changed: fix that and run again."
            ) from None
        raise


def _put(path: Path, new: bytes | None) -> None:
    file = path.resolve()
    if new is None:
        file.unlink(missing_ok=True)
        return
    mode = file.stat().st_mode & 0o7777 if file.exists() else None
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, new, mode=mode)


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()

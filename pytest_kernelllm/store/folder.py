"""The store's folder: reads and writes entries so that nothing on the disk can raise, and collects what went wrong.

::

    .kernelllm/
      .gitignore                           ignores the folder itself
      version                              of the source hashes that name the folders below
      targets/<source hash>/               everything known about one state of one target's source
        completions/<identity>/0000.json   what one generator wrote, in order
        renderings/<key>.json              the candidate a completion became, or why it became none
        kernels/<kernel hash>.py           candidates' text, for people to read
        measurements/<key>.json            how fast a program is that a search has tried
        verdicts/<kernel hash>-<key>.json
      runs/<id>.json                       how adopted kernels did in one run
      patches/  locks/  damaged/  other-versions/
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from kernelllm_judge.core.records import RecordError, SchemaError
from kernelllm_runtime.source.source_hash import VERSION
from pytest_kernelllm.store.entry import (
    DamagedEntry,
    OtherVersion,
    UnsignedEntry,
    decode,
    digest,
    encode,
    write_atomic,
)
from pytest_kernelllm.store.signing import VARIABLE, StoreKey

T = TypeVar("T")

DAMAGED = "damaged"
VERSION_FILE = "version"
OTHER_VERSIONS = "other-versions"


class StoreFolder:
    """The files of one store. It is created with the first write.

    An entry that cannot be read counts as missing, a write that fails is skipped, and ``problems`` gains one sentence
    about each. With a key, entries are signed, and those that it did not sign count as missing.
    """

    def __init__(self, path: Path, key: StoreKey | None) -> None:
        """Prepares; files are read when they are asked for."""
        self.path = path
        self.key = key
        self.problems: list[str] = []

    def target(self, source_hash: str) -> Path:
        """Returns the folder of one state of one target's source."""
        name = source_hash if re.fullmatch(r"\w[\w.-]{0,99}", source_hash, re.ASCII) else digest(source_hash)
        return self.path / "targets" / name

    def name_of(self, path: Path) -> str:
        """Returns a file's place in the store, the same on every machine."""
        return path.relative_to(self.path).as_posix()

    def read(self, path: Path, kind: str, build: Callable[[Any], T]) -> T | None:
        """Reads an entry; None if it is missing, or counts as missing."""
        try:
            return build(decode(kind, path.read_bytes(), self.name_of(path), self.key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UnsignedEntry:
            self.problem(
                f"{self.path}: entries that {VARIABLE} did not sign count as missing and are made again."
            )
        except (OtherVersion, SchemaError):
            self._set_aside(path, OTHER_VERSIONS)
            self.problem(
                f"{self.path}: entries of another version of pytest-kernelllm count as missing; they are kept in "
                f"{self.path / OTHER_VERSIONS}/."
            )
        except (DamagedEntry, RecordError) as error:
            if moved := self._set_aside(path, DAMAGED):
                self.problem(f"{moved}: a damaged entry counts as missing: {error}.")
        except OSError as error:
            self.problem(f"{path}: cannot be read ({error}) and counts as missing.")
        return None

    def write_entry(self, path: Path, kind: str, body: Any) -> bool:
        """Writes an entry, and returns whether it could."""
        return self.write(path, encode(kind, body, self.name_of(path), self.key))

    def write(self, path: Path, content: bytes) -> bool:
        """Writes a file, whole or not at all, and returns whether it could."""
        try:
            self._make(path.parent)
            write_atomic(path, content)
        except OSError as error:
            self.problem(f"{path.parent}: cannot be written ({error}), so this result is not remembered.")
            return False
        return True

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Holds a lock that all processes of this project share: one of them does ``name``, the others wait.

        Where no lock can be taken (read-only folder), the work is done without.
        """
        from filelock import FileLock

        path = self.path / "locks" / f"{digest(name)[:32]}.lock"
        with contextlib.ExitStack() as stack:
            try:
                self._make(path.parent)
                stack.enter_context(FileLock(path))
            except OSError as error:
                self.problem(f"{path.parent}: no lock can be taken ({error}), so work may be done twice.")
            yield

    @property
    def current(self) -> bool:
        """Whether its folders are named by the source hashes of this version; True for a store that is not there yet."""
        try:
            return (self.path / VERSION_FILE).read_text() == str(VERSION)
        except OSError:
            return not (self.path / "targets").is_dir()

    def mark_current(self) -> None:
        """Notes that its folders are named by the source hashes of this version."""
        with contextlib.suppress(OSError):
            write_atomic(self.path / VERSION_FILE, str(VERSION).encode())

    def problem(self, sentence: str) -> None:
        """Records what went wrong, once for each reason."""
        if sentence not in self.problems:
            self.problems.append(sentence)

    def _set_aside(self, path: Path, where: str) -> Path | None:
        """Moves a file out of the way; where it lies now, or None if another process was first, and reports it."""
        moved = self.path / where / "-".join(path.relative_to(self.path).parts)
        try:
            self._make(moved.parent)
            path.replace(moved)
        except FileNotFoundError:
            return None
        except OSError:
            return path
        return moved

    def _make(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            write_atomic(ignore, b"*\n")
            if self.current:
                self.mark_current()

"""The store in the project's own folder: completions, renderings, kernels and verdicts by source hash.

::

    .kernelllm/
      .gitignore                           ignores the folder itself
      targets/<source hash>/               everything known about one state of one target's source
        completions/<identity>/0000.json   what one generator wrote, in order
        renderings/<key>.json              the candidate a completion became, or why it became none
        kernels/<kernel hash>.py           candidates' text, for people to read
        verdicts/<kernel hash>-<env>.json
      patches/  locks/  damaged/
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pytest_kernelllm.core.records import (
    SCHEMA,
    Candidate,
    Completion,
    Environment,
    KernelRecord,
    RecordError,
)
from pytest_kernelllm.store.entry import DamagedEntry, UnsignedEntry, decode, digest, encode, write_atomic
from pytest_kernelllm.store.signing import VARIABLE, find_key

T = TypeVar("T")

ABANDONED_S = 3600.0
"""Age in seconds at which ``gc`` takes a temporary file for one whose writer was killed."""


class Store:
    """What is known about targets, on disk. Made at once, creates its folder with the first write.

    Nothing here raises because of what is on disk: an entry that cannot be read counts as missing, a write
    that fails is skipped, and ``problems`` gains one sentence for people about each. Where the environment holds
    a key (``signing``), entries are signed, and those that it did not sign count as missing.
    """

    def __init__(
        self, root: Path, folder: str = ".kernelllm", environ: Mapping[str, str] | None = None
    ) -> None:
        """A store below the project root.

        Args:
            root: the project's folder.
            folder: the setting ``store``.
            environ: where the key is looked up, by default this process's environment.

        Raises:
            ConfigError: the key is too short.
        """
        self.path = root / folder
        self._key = find_key(os.environ if environ is None else environ)
        self.problems: list[str] = []

    # ------------------------------------------------------------------ completions

    def completion(self, source_hash: str, identity: str, index: int) -> Completion | None:
        """One completion, if it is known."""
        return self._read(
            self._completion_path(source_hash, identity, index), "completion", Completion.from_json
        )

    def add_completion(self, source_hash: str, identity: str, completion: Completion) -> None:
        """Remember a completion under its ``index``."""
        path = self._completion_path(source_hash, identity, completion.index)
        self._write_entry(path, "completion", completion.to_json())

    def exhausted(self, source_hash: str, identity: str) -> bool:
        """Whether this generator has said that it has no more distinct completions for the target."""
        path = self._completion_path(source_hash, identity, 0).with_name("exhausted.json")
        return self._read(path, "exhausted", bool) is True

    def mark_exhausted(self, source_hash: str, identity: str) -> None:
        """Remember that asking this generator for more is of no use."""
        path = self._completion_path(source_hash, identity, 0).with_name("exhausted.json")
        self._write_entry(path, "exhausted", True)

    # ------------------------------------------------------------------ renderings

    def rendering(self, completion: Completion, source_hash: str, version: str) -> Candidate | str | None:
        """What became of a completion: a candidate, the sentence why it became none, or None: not known.

        Args:
            completion: the completion, as the store returned it.
            source_hash: of the target it was rendered for.
            version: of the renderer; another version's results do not count.
        """
        return self._read(self._rendering_path(completion, source_hash, version), "rendering", _rendering)

    def add_rendering(
        self, completion: Completion, source_hash: str, version: str, result: Candidate | str
    ) -> None:
        """Remember a rendering, and keep a candidate's text where people can read it."""
        if isinstance(result, Candidate):
            self._write(self.kernel_path(source_hash, result.kernel_hash), result.source.encode())
            body: dict[str, Any] = {"candidate": result.to_json()}
        else:
            body = {"rejected": result}
        self._write_entry(self._rendering_path(completion, source_hash, version), "rendering", body)

    def kernel_path(self, source_hash: str, kernel_hash: str) -> Path:
        """Where a candidate's text lies, byte for byte."""
        return self._target(source_hash) / "kernels" / f"{kernel_hash}.py"

    # ------------------------------------------------------------------ verdicts

    def verdict(self, kernel_hash: str, source_hash: str, environment: Environment) -> KernelRecord | None:
        """What the judge decided about a kernel for this source in this environment, if it did."""
        record = self._read(self._verdict_path(kernel_hash, source_hash, environment), "verdict", _verdict)
        known = record and (record.verdict.kernel_hash, record.source_hash, record.verdict.environment)
        return record if known == (kernel_hash, source_hash, environment) else None

    def add_verdict(self, record: KernelRecord) -> None:
        """Remember a verdict, in place of an earlier one on the same kernel, source and environment."""
        verdict = record.verdict
        path = self._verdict_path(verdict.kernel_hash, record.source_hash, verdict.environment)
        self._write_entry(path, "verdict", record.to_json())

    def verdicts(self) -> Iterator[KernelRecord]:
        """Every verdict that can be read, ordered by source hash and kernel hash."""
        for path in sorted(self.path.glob("targets/*/verdicts/*.json")):
            if record := self._read(path, "verdict", _verdict):
                yield record

    # ------------------------------------------------------------------ verdicts of other stores

    @property
    def signs(self) -> bool:
        """Whether there is a key."""
        return self._key is not None

    def verdict_entries(self) -> Iterator[tuple[str, bytes, KernelRecord]]:
        """Every verdict that can be read: its place (``name_of``), its entry as it is stored, and what it says."""
        for record in self.verdicts():
            verdict = record.verdict
            path = self._verdict_path(verdict.kernel_hash, record.source_hash, verdict.environment)
            with contextlib.suppress(OSError):
                yield self.name_of(path), path.read_bytes(), record

    def take_verdict(self, name: str, content: bytes) -> bool:
        """Remember a verdict as another store has it, signature and all; False where this one has its own.

        Args:
            name: its place there.
            content: its entry.

        Raises:
            DamagedEntry: it is no whole verdict, or not in the place that its content says.
            UnsignedEntry: there is a key, and it did not sign this.
        """
        try:
            record = _verdict(decode("verdict", content, name, self._key))
        except RecordError as error:
            raise DamagedEntry(str(error)) from None
        verdict = record.verdict
        path = self._verdict_path(verdict.kernel_hash, record.source_hash, verdict.environment)
        if self.name_of(path) != name:
            raise DamagedEntry("it is not in its place")
        if self.verdict(verdict.kernel_hash, record.source_hash, verdict.environment) is not None:
            return False
        self._write(path, content)
        return True

    def name_of(self, path: Path) -> str:
        """A file's place in the store, the same on every machine."""
        return path.relative_to(self.path).as_posix()

    # ------------------------------------------------------------------ the folder

    def write_patch(self, name: str, patch: bytes) -> Path:
        """Keep a patch as ``patches/<name>.patch`` and say where that is."""
        path = self.path / "patches" / f"{name}.patch"
        self._write(path, patch)
        return path

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold a lock that all processes of this project share: one of them does ``name``, the others wait.

        Where no lock can be taken (read-only folder), the work is done without.
        """
        from filelock import FileLock

        path = self.path / "locks" / f"{digest(name)[:32]}.lock"
        with contextlib.ExitStack() as stack:
            try:
                self._make_folder(path.parent)
                stack.enter_context(FileLock(path))
            except OSError as error:
                self._problem(f"{path.parent}: no lock can be taken ({error}), so work may be done twice.")
            yield

    def gc(self, keep: Iterable[str]) -> int:
        """Forget all targets but those with a source hash in ``keep``; the number of targets forgotten.

        Damaged entries and files that a killed process left behind go too.
        """
        kept = {self._target(source_hash).name for source_hash in keep}
        gone = [path for path in self.path.glob("targets/*") if path.name not in kept]
        for path in (*gone, self.path / "damaged"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.path.rglob(".*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED_S:
                    path.unlink()
        return len(gone)

    # ------------------------------------------------------------------ paths

    def _target(self, source_hash: str) -> Path:
        name = source_hash if re.fullmatch(r"\w[\w.-]{0,99}", source_hash, re.ASCII) else digest(source_hash)
        return self.path / "targets" / name

    def _completion_path(self, source_hash: str, identity: str, index: int) -> Path:
        return self._target(source_hash) / "completions" / digest(identity)[:32] / f"{index:04}.json"

    def _rendering_path(self, completion: Completion, source_hash: str, version: str) -> Path:
        key = digest(json.dumps(completion.to_json(), sort_keys=True), version)[:32]
        return self._target(source_hash) / "renderings" / f"{key}.json"

    def _verdict_path(self, kernel_hash: str, source_hash: str, environment: Environment) -> Path:
        return self._target(source_hash) / "verdicts" / f"{kernel_hash}-{environment.key}.json"

    # ------------------------------------------------------------------ reading and writing

    def _read(self, path: Path, kind: str, build: Callable[[Any], T]) -> T | None:
        try:
            return build(decode(kind, path.read_bytes(), self.name_of(path), self._key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UnsignedEntry:
            self._problem(
                f"{self.path}: entries that {VARIABLE} did not sign count as missing and are made again."
            )
        except (DamagedEntry, RecordError) as error:
            self._set_aside(path, str(error))
        except OSError as error:
            self._problem(f"{path}: cannot be read ({error}) and counts as missing.")
        return None

    def _set_aside(self, path: Path, why: str) -> None:
        moved = self.path / "damaged" / "-".join(path.relative_to(self.path).parts)
        try:
            self._make_folder(moved.parent)
            path.replace(moved)
        except FileNotFoundError:
            return  # another process was first, and reports it
        except OSError:
            moved = path
        self._problem(f"{moved}: a damaged entry counts as missing: {why}.")

    def _write_entry(self, path: Path, kind: str, body: Any) -> None:
        self._write(path, encode(kind, body, self.name_of(path), self._key))

    def _write(self, path: Path, content: bytes) -> None:
        try:
            self._make_folder(path.parent)
            write_atomic(path, content)
        except OSError as error:
            self._problem(f"{path.parent}: cannot be written ({error}), so this result is not remembered.")

    def _make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            write_atomic(ignore, b"*\n")

    def _problem(self, sentence: str) -> None:
        if sentence not in self.problems:
            self.problems.append(sentence)


def _rendering(body: Any) -> Candidate | str:
    if isinstance(body, dict) and isinstance(body.get("rejected"), str):
        return str(body["rejected"])
    if isinstance(body, dict) and isinstance(body.get("candidate"), dict):
        return Candidate.from_json(body["candidate"])
    raise RecordError("it holds neither a candidate nor a reason")


def _verdict(body: Any) -> KernelRecord:
    record = KernelRecord.from_json(body)
    if {record.schema, record.verdict.schema} != {SCHEMA}:
        raise RecordError(f"its schema is {record.schema}, this version reads {SCHEMA}")
    if record.candidate.kernel_hash != record.verdict.kernel_hash:
        raise RecordError("its kernel is not the one that was judged")
    return record

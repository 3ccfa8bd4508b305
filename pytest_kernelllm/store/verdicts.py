"""Verdicts in the store, by what was judged, where, and on which terms."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelllm_judge.core.records import Environment, KernelRecord, RecordError, Terms
from pytest_kernelllm.store.entry import DamagedEntry, OtherVersion, decode
from pytest_kernelllm.store.folder import StoreFolder

DEFAULT = Terms()


@dataclass(frozen=True)
class VerdictKey:
    """Names the verdict on one kernel."""

    source_hash: str
    kernel_hash: str
    environment: Environment
    terms: Terms = DEFAULT

    @classmethod
    def of(cls, record: KernelRecord) -> VerdictKey:
        """Returns the key of a verdict."""
        verdict = record.verdict
        return cls(record.source_hash, verdict.kernel_hash, verdict.environment, record.terms)


@dataclass(frozen=True)
class VerdictFiles:
    """Verdicts by source, kernel, environment and terms. Iterating gives every one that can be read."""

    _folder: StoreFolder

    def get(self, key: VerdictKey) -> KernelRecord | None:
        """Returns what the judge decided, if it did."""
        record = self._folder.read(self._path(key), "verdict", verdict_of)
        return record if record and VerdictKey.of(record) == key else None

    def put(self, key: VerdictKey, record: KernelRecord) -> None:
        """Remembers a verdict, in place of an earlier one under the same key."""
        self._folder.write_entry(self._path(key), "verdict", record.to_json())

    def add(self, record: KernelRecord) -> None:
        """Remembers a verdict under its own key."""
        self.put(VerdictKey.of(record), record)

    def __iter__(self) -> Iterator[KernelRecord]:
        """Yields every verdict that can be read, ordered by source hash and kernel hash."""
        for path in sorted(self._folder.path.glob("targets/*/verdicts/*.json")):
            if record := self._folder.read(path, "verdict", verdict_of):
                yield record

    def entries(self) -> Iterator[tuple[str, bytes, KernelRecord]]:
        """Yields every verdict that can be read: its place in the store, its entry as it is stored, and what it says."""
        for record in self:
            path = self._path(VerdictKey.of(record))
            with contextlib.suppress(OSError):
                yield self._folder.name_of(path), path.read_bytes(), record

    def take(self, name: str, content: bytes) -> bool:
        """Remembers a verdict as another store has it, signature and all; False where this one has its own.

        Raises:
            DamagedEntry: it is no whole verdict, of another version, or not in the place that its content says.
            UnsignedEntry: there is a key, and it did not sign this.
        """
        try:
            record = verdict_of(decode("verdict", content, name, self._folder.key))
        except (RecordError, OtherVersion) as error:
            raise DamagedEntry(str(error)) from None
        key = VerdictKey.of(record)
        if self._folder.name_of(self._path(key)) != name:
            raise DamagedEntry("it is not in its place")
        if self.get(key) is not None:
            return False
        self._folder.write(self._path(key), content)
        return True

    def _path(self, key: VerdictKey) -> Path:
        name = key.environment.key
        if key.terms != DEFAULT:
            text = name + json.dumps(key.terms.to_json(), sort_keys=True)
            name = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self._folder.target(key.source_hash) / "verdicts" / f"{key.kernel_hash}-{name}.json"


def verdict_of(body: Any) -> KernelRecord:
    """Returns the verdict that an entry holds.

    Raises:
        RecordError: it is none, or on another kernel than the one that is named.
    """
    record = KernelRecord.from_json(body)
    if record.verdict.kernel_hash != record.candidate.kernel_hash:
        raise RecordError("its kernel is not the one that was judged")
    return record

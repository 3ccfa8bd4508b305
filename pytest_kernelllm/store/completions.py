"""Completions in the store: what each generator wrote for each state of a target's source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.records import Completion
from pytest_kernelllm.store.entry import digest
from pytest_kernelllm.store.folder import StoreFolder


@dataclass(frozen=True)
class CompletionKey:
    """Names one completion."""

    source_hash: str
    """Source hash of the target that it was written for."""
    identity: str
    """Identity of the generator, with its settings."""
    index: int


@dataclass(frozen=True)
class CompletionFiles:
    """Completions by source, generator and index."""

    _folder: StoreFolder

    def get(self, key: CompletionKey) -> Completion | None:
        """Returns a completion, if it is known."""
        return self._folder.read(self._path(key), "completion", Completion.from_json)

    def put(self, key: CompletionKey, completion: Completion) -> None:
        """Remembers a completion."""
        self._folder.write_entry(self._path(key), "completion", completion.to_json())

    def exhausted(self, key: CompletionKey) -> bool:
        """Whether the generator has no more distinct completions for the target, whatever the index."""
        return self._folder.read(self._exhausted(key), "exhausted", bool) is True

    def mark_exhausted(self, key: CompletionKey) -> None:
        """Remembers that asking the generator for more is of no use."""
        self._folder.write_entry(self._exhausted(key), "exhausted", True)

    def _path(self, key: CompletionKey) -> Path:
        folder = self._folder.target(key.source_hash) / "completions" / digest(key.identity)[:32]
        return folder / f"{key.index:04}.json"

    def _exhausted(self, key: CompletionKey) -> Path:
        return self._path(key).with_name("exhausted.json")

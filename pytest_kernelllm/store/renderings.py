"""Renderings in the store: the candidate that a completion became, or why it became none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelllm_judge.core.records import Candidate, Completion, RecordError
from pytest_kernelllm.store.entry import digest
from pytest_kernelllm.store.folder import StoreFolder


@dataclass(frozen=True)
class RenderingKey:
    """Names what became of one completion."""

    source_hash: str
    completion: Completion
    version: str
    """Version of the renderer; results of another version do not count."""


@dataclass(frozen=True)
class RenderingFiles:
    """What became of completions: a candidate, or the sentence that says why it became none."""

    _folder: StoreFolder

    def get(self, key: RenderingKey) -> Candidate | str | None:
        """Returns what became of a completion, if it is known."""
        return self._folder.read(self._path(key), "rendering", _rendering)

    def put(self, key: RenderingKey, result: Candidate | str) -> None:
        """Remembers a rendering, and writes a candidate's text where people can read it."""
        if isinstance(result, Candidate):
            self._folder.write(self.kernel(key.source_hash, result.kernel_hash), result.source.encode())
            body: dict[str, Any] = {"candidate": result.to_json()}
        else:
            body = {"rejected": result}
        self._folder.write_entry(self._path(key), "rendering", body)

    def kernel(self, source_hash: str, kernel_hash: str) -> Path:
        """Returns where a candidate's text lies, byte for byte."""
        return self._folder.target(source_hash) / "kernels" / f"{kernel_hash}.py"

    def _path(self, key: RenderingKey) -> Path:
        name = digest(json.dumps(key.completion.to_json(), sort_keys=True), key.version)[:32]
        return self._folder.target(key.source_hash) / "renderings" / f"{name}.json"


def _rendering(body: Any) -> Candidate | str:
    if isinstance(body, dict) and isinstance(body.get("rejected"), str):
        return str(body["rejected"])
    if isinstance(body, dict) and isinstance(body.get("candidate"), dict):
        return Candidate.from_json(body["candidate"])
    raise RecordError("it holds neither a candidate nor a reason")

"""Runs in the store: how adopted kernels did, so that later runs can be compared with them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_kernelllm.core.history import Run
from pytest_kernelllm.store.folder import StoreFolder

KEPT = 100
"""Runs without a name that ``gc`` keeps beside those that later runs may be compared with."""


@dataclass(frozen=True)
class RunFiles:
    """Runs by id. Iterating gives every one that can be read, oldest first."""

    _folder: StoreFolder

    def put(self, run: Run) -> bool:
        """Remembers a run, and returns whether it could."""
        return self._folder.write_entry(self._path(run.id), "run", run.to_json())

    def __iter__(self) -> Iterator[Run]:
        """Yields every run that can be read."""
        for path in sorted(self._folder.path.glob("runs/*.json")):
            if run := self._folder.read(path, "run", Run.from_json):
                yield run

    def gc(self, keep: Collection[str]) -> int:
        """Forgets runs, and returns how many.

        Kept are, of the runs with a target in ``keep``: those with a name, the latest ``KEPT``, and for each target and
        GPU the latest that is a reference.
        """
        gone = needed = 0
        references: set[tuple[str, str, str]] = set()
        for run in reversed(list(self)):
            own = [kernel for kernel in run.kernels if kernel.source_hash in keep]
            new = {
                (kernel.source_hash, kernel.inputs, run.environment.gpu)
                for kernel in own
                if kernel.correct and not kernel.slower
            } - references
            references |= new
            if run.name and own:
                continue
            needed += bool(own)
            if not own or (needed > KEPT and not new):
                gone += 1
                with contextlib.suppress(OSError):
                    self._path(run.id).unlink()
        return gone

    def _path(self, name: str) -> Path:
        return self._folder.path / "runs" / f"{name}.json"

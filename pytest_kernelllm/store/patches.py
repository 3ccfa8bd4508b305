"""Patches in the store, for people to apply."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from pytest_kernelllm.store.folder import StoreFolder


@dataclass(frozen=True)
class PatchFiles:
    """Patches by name."""

    _folder: StoreFolder

    @property
    def path(self) -> Path:
        """The folder in which they lie."""
        return self._folder.path / "patches"

    def write(self, name: str, patch: bytes) -> Path | None:
        """Writes a patch and returns its path; None if it cannot be written."""
        path = self.path / f"{name}.patch"
        return path if self._folder.write(path, patch) else None

    def remove(self, name: str) -> None:
        """Removes a patch, if it is there."""
        with contextlib.suppress(OSError):
            (self.path / f"{name}.patch").unlink(missing_ok=True)

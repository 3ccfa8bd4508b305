"""The store in the project's own folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_kernelllm.store.completions import CompletionFiles
from pytest_kernelllm.store.folder import DAMAGED, StoreFolder
from pytest_kernelllm.store.measurements import MeasurementFiles
from pytest_kernelllm.store.patches import PatchFiles
from pytest_kernelllm.store.renderings import RenderingFiles
from pytest_kernelllm.store.runs import RunFiles
from pytest_kernelllm.store.signing import find_key
from pytest_kernelllm.store.upgrade import upgrade
from pytest_kernelllm.store.verdicts import VerdictFiles

ABANDONED_S = 3600.0
"""Age in seconds at which ``gc`` takes a temporary file for one whose writer was killed."""


class Store(StoreFolder):
    """What is known about targets, on disk. Made at once, creates its folder with the first write.

    A folder that the version before left is brought up to date when it is opened.

    Nothing here raises because of what is on disk, see ``StoreFolder``.
    """

    def __init__(
        self, root: Path, folder: str = ".kernelllm", environ: Mapping[str, str] | None = None
    ) -> None:
        """Opens the store below the project root.

        Raises:
            ConfigError: the key is too short.
        """
        super().__init__(root / folder, find_key(os.environ if environ is None else environ))
        if not self.current:
            with self.lock("upgrade"):
                if not self.current:
                    upgrade(self, root)
                    self.mark_current()
        self.completions = CompletionFiles(self)
        self.renderings = RenderingFiles(self)
        self.measurements = MeasurementFiles(self)
        self.verdicts = VerdictFiles(self)
        self.runs = RunFiles(self)
        self.patches = PatchFiles(self)

    def gc(self, keep: Iterable[str]) -> int:
        """Forgets all targets but those with a source hash in ``keep``; the number of targets forgotten.

        Runs that nothing is compared with any more, damaged entries and files that a killed process left behind go too.
        """
        hashes = set(keep)
        self.runs.gc(hashes)
        kept = {self.target(source_hash).name for source_hash in hashes}
        gone = [path for path in self.path.glob("targets/*") if path.name not in kept]
        for path in (*gone, self.path / DAMAGED):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.path.rglob(".*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED_S:
                    path.unlink()
        return len(gone)

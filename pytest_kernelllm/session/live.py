"""The targets' classes, imported with their cases when a stage first needs them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import Target
from pytest_kernelllm.core.overrides import Overrides

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget


class LiveTargets:
    """Live targets by ``Target.id``. Each is imported once; several threads may ask."""

    def __init__(
        self, root: Path, overrides: Callable[[Target], Overrides], progress: Callable[[str], None]
    ) -> None:
        """Imports nothing yet.

        Args:
            root: the project root.
            overrides: what a conftest says about a target.
            progress: called with a few words about what is being done.
        """
        self._root = root
        self._overrides = overrides
        self._progress = progress
        self._live: dict[str, LiveTarget] = {}
        self._lock = threading.RLock()

    def __call__(self, target: Target) -> LiveTarget:
        """Returns the target's class, imported, with its cases.

        Raises:
            SessionError: it cannot be imported, built or called, or torch is missing.
        """
        with self._lock:
            if target.id not in self._live:
                self._progress(f"{target.name}: importing")
                _require_torch()
                from kernelllm_judge.target.live import TargetError, load_target

                inputs = self._overrides(target).inputs
                try:
                    self._live[target.id] = load_target(self._root, target, inputs=inputs)
                except TargetError as error:
                    raise SessionError(str(error)) from None
            return self._live[target.id]


def _require_torch() -> None:
    for name in ("torch", "triton"):
        try:
            __import__(name)
        except ImportError:
            raise SessionError(
                f"{name} is not installed, so nothing can be judged; run `pip install 'pytest-kernelllm[torch]'`."
            ) from None

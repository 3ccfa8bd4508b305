"""What need not be made again: what this session has made, and behind it what the store holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from kernelllm_judge.core.measured import Measured
from kernelllm_judge.core.records import Candidate, Completion, KernelRecord
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.completions import CompletionKey
from pytest_kernelllm.store.measurements import MeasurementKey
from pytest_kernelllm.store.renderings import RenderingKey
from pytest_kernelllm.store.verdicts import VerdictKey

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)
V = TypeVar("V")


class Kept(Protocol[K_contra, V]):
    """What remembers beyond this session: a part of the store."""

    def get(self, key: K_contra, /) -> V | None:
        """Returns the value for a key, if it is known."""

    def put(self, key: K_contra, value: V, /) -> None:
        """Remembers a value."""


class Memo(Generic[K, V]):
    """Values by key: those of this session, and behind them those of the store."""

    def __init__(self, kept: Kept[K, V], lasts: Callable[[V], bool] = lambda value: True) -> None:
        """Knows what a part of the store knows; ``lasts`` says whether a value is worth keeping beyond this session."""
        self._kept = kept
        self._lasts = lasts
        self._here: dict[K, V] = {}

    def known(self, key: K, answers: Callable[[V], bool] = lambda value: True) -> V | None:
        """Returns the value for a key; None if it has to be made."""
        if key not in self._here:
            value = self._kept.get(key)
            if value is None or not answers(value):
                return None
            self._here[key] = value
        return self._here[key]

    def keep(self, key: K, value: V) -> V:
        """Remembers a value that was just made, and returns it."""
        self._here[key] = value
        if self._lasts(value):
            self._kept.put(key, value)
        return value


class Known:
    """The four things that a session makes: completions, renderings, measurements of a search, and verdicts."""

    def __init__(self, store: Store) -> None:
        """Knows what the store holds. What failed for a passing reason is not kept there."""
        self.completions: Memo[CompletionKey, Completion] = Memo(
            store.completions, lasts=lambda completion: not completion.failed
        )
        self.renderings: Memo[RenderingKey, Candidate | str] = Memo(store.renderings)
        self.measurements: Memo[MeasurementKey, Measured] = Memo(
            store.measurements, lasts=lambda measured: measured.seconds > 0
        )
        self.verdicts: Memo[VerdictKey, KernelRecord] = Memo(
            store.verdicts,
            lasts=lambda record: record.verdict.verdict != "inconclusive" or bool(record.verdict.lacks),
        )

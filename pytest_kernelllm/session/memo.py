"""Remembers what a stage made: what is known is not made again. The three stages of a session share this."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

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

    def __init__(
        self,
        kept: Kept[K, V],
        *,
        answers: Callable[[V], bool] = lambda value: True,
        lasts: Callable[[V], bool] = lambda value: True,
    ) -> None:
        """Knows what ``kept`` knows.

        Args:
            kept: a part of the store.
            answers: whether a value of the store answers what this session asks; one made now does.
            lasts: whether a value is worth keeping beyond this session.
        """
        self._kept = kept
        self._answers = answers
        self._lasts = lasts
        self._here: dict[K, V] = {}

    def known(self, key: K) -> V | None:
        """Returns the value for a key; None if it has to be made."""
        if key not in self._here:
            value = self._kept.get(key)
            if value is None or not self._answers(value):
                return None
            self._here[key] = value
        return self._here[key]

    def keep(self, key: K, value: V) -> V:
        """Remembers a value that was just made, and returns it."""
        self._here[key] = value
        if self._lasts(value):
            self._kept.put(key, value)
        return value

    def get(
        self,
        key: K,
        make: Callable[[], V],
        alone: contextlib.AbstractContextManager[object] | None = None,
    ) -> V:
        """Returns the value for a key: known, or made now and kept.

        Args:
            key: what is asked for.
            make: makes it.
            alone: a lock that others hold while they make the same value.
        """
        value = self.known(key)
        if value is None:
            with alone or contextlib.nullcontext():
                value = self.known(key)  # whoever held the lock before may have made it
                if value is None:
                    value = self.keep(key, make())
        return value

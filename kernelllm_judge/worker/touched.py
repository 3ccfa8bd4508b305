"""Finds out whether programs that ran at once touched one place, so that their order may have mattered."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

HELD = 1 << 22
"""Addresses of one launch that are kept, of its reads and of its writes; of further accesses only the range."""

SEVERAL = -1
"""Stands for a program where all that ran at once read the same place."""


@dataclass(frozen=True)
class Touch:
    """One load, store or atomic operation of programs that ran at once."""

    low: int
    high: int
    """First address, and the one behind the last."""
    size: int
    """Bytes of an element."""
    addresses: np.ndarray | None
    """With an axis of programs in front; None: they were too many to keep."""
    chosen: np.ndarray | None
    """Which elements are touched; None: all."""
    numbers: np.ndarray
    """The numbers of all programs that ran at once."""
    writes: bool
    atomic: bool

    def overlaps(self, other: Touch) -> bool:
        """Whether the ranges of two have addresses in common."""
        return self.low < other.high and other.low < self.high

    @property
    def places(self) -> np.ndarray:
        """The addresses, one after the other."""
        assert self.addresses is not None
        return self.addresses.ravel() if self.chosen is None else self.addresses[self.chosen]

    @property
    def programs(self) -> np.ndarray:
        """The number of the program that touches each."""
        assert self.addresses is not None
        if len(self.addresses) < len(self.numbers):
            return np.full(self.places.shape, SEVERAL)
        column = self.numbers.reshape(-1, *[1] * (self.addresses.ndim - 1))
        columns = np.broadcast_to(column, self.addresses.shape)
        return columns.ravel() if self.chosen is None else columns[self.chosen]


@dataclass
class Touched:
    """What the programs of one launch read and write."""

    _reads: list[Touch] = field(default_factory=list)
    _writes: list[Touch] = field(default_factory=list)
    _held: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    """How many addresses were touched, by whether they were written."""

    def note(
        self,
        addresses: np.ndarray,
        chosen: np.ndarray,
        size: int,
        programs: np.ndarray,
        *,
        writes: bool = False,
        atomic: bool = False,
    ) -> None:
        """Notes one access, of those elements that are ``chosen``; all arrays have an axis of programs in front."""
        some = not chosen.all()
        places = addresses[chosen] if some else addresses
        if not places.size:
            return
        self._held[writes] += places.size
        kept = addresses if self._held[writes] <= HELD else None
        ends = int(places.min()), int(places.max()) + size
        touch = Touch(*ends, size, kept, chosen if some else None, programs, writes, atomic)
        (self._writes if writes else self._reads).append(touch)

    def by_several(self) -> bool:
        """Whether several programs touch a place that one of them writes; it may be that they do not.

        A single atomic operation may: its programs come one after the other, as they would.
        """
        reads = [read for read in self._reads if any(map(read.overlaps, self._writes))]
        touches = self._writes + reads
        if any(touch.addresses is None for touch in touches):
            return True
        arrays = [touch.places for touch in touches]
        if not arrays:
            return False
        sizes = [touch.size for touch in touches]
        whole = len({*sizes}) == 1 and not any((each % sizes[0]).any() for each in arrays)
        spread = [1] * len(touches) if whole else sizes  # byte by byte, where elements may overlap
        places = np.concatenate(
            [
                (each[:, None] + np.arange(size, dtype=np.uint64)).ravel()
                for each, size in zip(arrays, spread, strict=True)
            ]
        )
        order = np.argsort(places, kind="stable")
        places = places[order]
        starts = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))

        def extremes(values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
            sorted_values = np.concatenate(values)[order]
            return np.minimum.reduceat(sorted_values, starts), np.maximum.reduceat(sorted_values, starts)

        lengths = [each.size * size for each, size in zip(arrays, spread, strict=True)]
        first, last = extremes([np.repeat(t.programs, n) for t, n in zip(touches, spread, strict=True)])
        _, written = extremes([np.full(n, t.writes) for t, n in zip(touches, lengths, strict=True)])
        one, other = extremes([np.full(n, number) for number, n in enumerate(lengths)])
        atomic = np.array([touch.atomic for touch in touches])[one] & (one == other)
        return bool((((first != last) | (first == SEVERAL)) & written & ~atomic).any())

"""Finds out whether programs that ran at once touched one place, so that their order may have mattered."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

HELD = 1 << 22
"""Addresses of one launch that are kept; of further accesses only the range."""

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
    """None: they were too many to keep."""
    programs: np.ndarray
    """The number of the program that touches each."""
    writes: bool
    atomic: bool

    def overlaps(self, other: Touch) -> bool:
        """Whether the ranges of two have addresses in common."""
        return self.low < other.high and other.low < self.high


@dataclass
class Touched:
    """What the programs of one launch read and write."""

    _reads: list[Touch] = field(default_factory=list)
    _writes: list[Touch] = field(default_factory=list)
    _held: int = 0

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
        places = addresses[chosen] if some else addresses.ravel()
        if not places.size:
            return
        if len(addresses) < len(programs):
            by = np.full(places.shape, SEVERAL)
        else:
            columns = np.broadcast_to(programs.reshape(-1, *[1] * (addresses.ndim - 1)), addresses.shape)
            by = columns[chosen] if some else columns.ravel()
        self._held += places.size
        kept = places if self._held <= HELD else None
        touch = Touch(int(places.min()), int(places.max()) + size, size, kept, by, writes, atomic)
        (self._writes if writes else self._reads).append(touch)

    def by_several(self) -> bool:
        """Whether several programs touch a place that one of them writes; it may be that they do not.

        A single atomic operation may: its programs come one after the other, as they would.
        """
        reads = [read for read in self._reads if any(map(read.overlaps, self._writes))]
        touches = self._writes + reads
        arrays = [touch.addresses for touch in touches if touch.addresses is not None]
        if len(arrays) < len(touches):
            return True
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

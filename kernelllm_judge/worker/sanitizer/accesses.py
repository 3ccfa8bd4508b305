"""Records what the programs of one kernel launch read and write."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelllm_judge.worker.sanitizer.regions import Region


@dataclass(frozen=True, eq=False)
class Access:
    """One load, store or atomic operation of one program, on one region."""

    region: Region
    offsets: np.ndarray
    """Bytes from the region's start to each element, as int64."""
    size: int
    """Bytes of an element."""
    program: int
    """Index of the program in the grid, in the order in which the interpreter runs them."""
    line: int
    """Line of the candidate's source."""
    reads: bool
    writes: bool
    atomic: bool = False
    acquires: bool = False
    """Whether an atomic operation makes visible what others released at its address."""
    releases: bool = False
    """Whether it makes what its program did before visible to those that acquire."""
    keeps: bool = False
    """Whether an atomic operation leaves the value as it is, such as one that adds 0 to wait for others."""
    early: bool = False
    """Whether it gets the value from before the last release at its address, which may come later as well."""
    values: np.ndarray | None = None
    """The elements written by a plain store."""
    packed: bool = False
    """Whether the elements lie side by side in ascending order."""

    def places(self, unit: int) -> slice | np.ndarray:
        """Returns the units of ``unit`` bytes that it touches, as an index; ``unit`` divides offsets and size."""
        if self.packed:
            first = int(self.offsets[0])
            return slice(first // unit, (first + len(self.offsets) * self.size) // unit)
        return self.units(unit)

    def units(self, unit: int) -> np.ndarray:
        """Returns the same as an array, element after element."""
        starts = self.offsets // unit
        if unit == self.size:
            return starts
        return (starts[:, None] + np.arange(self.size // unit)).ravel()

    @cached_property
    def stored(self) -> np.ndarray:
        """What a plain store writes, byte by byte."""
        assert self.values is not None
        return np.ascontiguousarray(self.values).view(np.uint8).ravel()

    def value(self, place: int, unit: int) -> bytes | None:
        """Returns what it writes to the ``place``-th of its units; None where that is not known."""
        return None if self.values is None else self.stored[place * unit : (place + 1) * unit].tobytes()


def common_unit(accesses: list[Access]) -> int:
    """Returns the largest number of bytes that divides all elements and their offsets, or 1."""
    sizes = {access.size for access in accesses}
    size = sizes.pop()
    return size if not sizes and all(not (a.offsets % size).any() for a in accesses) else 1


def read_first(accesses: list[Access], region: Region) -> np.ndarray:
    """Returns for each byte of a region whether a launch reads it before it writes it."""
    first, written = np.zeros(region.size, bool), np.zeros(region.size, bool)
    for access in accesses:
        if access.region is region:
            places = access.units(1)
            if access.reads:
                first[places[~written[places]]] = True
            if access.writes:
                written[places] = True
    return first

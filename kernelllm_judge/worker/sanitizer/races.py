"""Records what the programs of one launch read and write, and finds races: places that several touch in no certain order.

Programs of a grid run in any order and at the same time. Only atomic operations order what they do: a program
that acquires at an address sees what others did before they released there. This is the happens-before
relation of vector clocks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
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


EXAMINED = 1 << 14
"""Most units of memory of one region that are examined in detail."""

LOOKS = 3
"""How often a program looks before the last change of a value has come: more than once, as it may look a second time in vain."""

Place = tuple[Region, int]
"""A region, and the bytes from its start."""

Clock = Mapping[int, int]
"""For each program the number of its releases that are known to have happened."""


@dataclass(frozen=True)
class Race:
    """Two accesses of different programs that nothing orders."""

    first: Access
    second: Access
    offset: int
    """Bytes from the start of the region to the place that both touch."""


def find_race(log: list[Access], order: Order | None = None) -> Race | None:
    """Returns a race among the accesses of one launch, which are in the order in which they were made; ``order`` has them all."""
    by_region: defaultdict[Region, list[int]] = defaultdict(list)
    for number, access in enumerate(log):
        by_region[access.region].append(number)
    for region, numbers in by_region.items():
        accesses = [log[number] for number in numbers]
        if not any(access.writes for access in accesses):
            continue
        unit = common_unit(accesses)
        shared = _shared(accesses, region.size // unit + 1, unit)
        if not shared.any():
            continue
        order = order or Order(log)
        histories: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        chosen = np.zeros_like(shared)
        chosen[np.flatnonzero(shared)[:EXAMINED]] = True
        for number in numbers:
            units = log[number].units(unit)
            for place in np.flatnonzero(chosen[units]):
                histories[int(units[place])].append((number, int(place)))
        for where, history in histories.items():
            if pair := _unordered(log, history, order, unit):
                return Race(*pair, where * unit)
    return None


def _shared(accesses: list[Access], count: int, unit: int) -> np.ndarray:
    """Returns which units several programs touch, at least one writing and not all by atomic operations."""
    owner = np.full(count, -1, np.int32)
    several, written, plain = (np.zeros(count, bool) for _ in range(3))
    for access in accesses:
        places = access.places(unit)
        before = owner[places]
        several[places] |= (before >= 0) & (before != access.program)
        owner[places] = access.program
        if access.writes:
            written[places] = True
        if not access.atomic:
            plain[places] = True
    return several & written & plain


@dataclass(frozen=True)
class Release:
    """The last change of a value, by an operation that releases."""

    number: int
    """Number of the access."""
    program: int
    epoch: int
    before: Clock
    """What was released there before."""


class Order:
    """Which accesses of a launch happen before which others.

    The interpreter runs one program after the other, so that a program which waits finds that all others are done, even if
    it waits for too few of them. On a GPU it might have looked earlier. So each program that looks at a value which another
    one has changed gets the value from before that change at first, and knows only what was released until then.
    """

    def __init__(self, log: Iterable[Access]) -> None:
        """Follows the accesses of a launch, as far as they have been made."""
        self._stamps: list[tuple[int, int, Clock]] = []
        """Program, number of its next release, and what it knows, of each access."""
        self._releases: defaultdict[int, int] = defaultdict(lambda: 1)
        self._known: defaultdict[int, Clock] = defaultdict(dict)
        self._published: defaultdict[Place, Clock] = defaultdict(dict)
        self._last: defaultdict[Region, dict[int, Release]] = defaultdict(dict)
        """Releases by region, and bytes from its start."""
        self._seen: dict[tuple[int, Place], Release] = {}
        """The last release that a program has seen at a place, so that it cannot see an older value."""
        self._looked: Counter[tuple[int, Place]] = Counter()
        for access in log:
            self.add(access)

    def add(self, access: Access) -> None:
        """Follows the acquires and releases of the launch's next access."""
        program, last = access.program, self._last[access.region]
        synchronising = access.acquires or access.releases
        places = [(access.region, int(offset)) for offset in access.offsets] if synchronising else []
        if access.atomic and access.reads and not access.early and last:
            for offset in map(int, access.offsets):
                if offset in last:
                    self._seen[program, (access.region, offset)] = last[offset]
        if access.acquires:
            for place in places:
                seen = last[place[1]].before if access.early else self._published[place]
                self._known[program] = _joined(self._known[program], seen)
        number, epoch = len(self._stamps), self._releases[program]
        self._stamps.append((program, epoch, self._known[program]))
        if access.writes and not access.keeps and last:
            for offset in map(int, access.offsets):
                last.pop(offset, None)
        if access.releases:
            mine = {**self._known[program], program: epoch}
            for place in places:
                if not access.keeps:
                    last[place[1]] = Release(number, program, epoch, self._published[place])
                self._published[place] = _joined(self._published[place], mine)
            self._releases[program] += 1

    def looked_past(self, access: Access) -> Release | None:
        """Returns the last release at the place of an access that keeps the value, if it may come before that one.

        It may for all that its program knows, but does at first only: after a few times a program finds the last value.
        """
        place = (access.region, int(access.offsets[0]))
        last = self._last[access.region].get(place[1])
        if last is None or last.program == access.program or self._seen.get((access.program, place)) is last:
            return None
        self._looked[access.program, place] += 1
        early = self._known[access.program].get(last.program, 0) < last.epoch
        return last if early and self._looked[access.program, place] <= LOOKS else None

    def ordered(self, earlier: int, later: int) -> bool:
        """Whether the access with number ``earlier`` happens before ``later`` in every run."""
        program, epoch, _ = self._stamps[earlier]
        other, _, known = self._stamps[later]
        return program == other or known.get(program, 0) >= epoch


def _joined(one: Clock, other: Clock) -> Clock:
    if not other:
        return one
    return {program: max(one.get(program, 0), other.get(program, 0)) for program in {**one, **other}}


def _unordered(
    log: list[Access], history: list[tuple[int, int]], order: Order, unit: int
) -> tuple[Access, Access] | None:
    """Returns two accesses to one unit of memory that race, if there are any."""
    frontier: list[tuple[int, int]] = []
    for number, place in history:
        access, ordered = log[number], True
        for earlier, earlier_place in frontier:
            if order.ordered(earlier, number):
                continue
            ordered = False
            other = log[earlier]
            if not (access.writes or other.writes) or (access.atomic and other.atomic):
                continue
            writes = [(log[n], p) for n, p in frontier if log[n].writes]
            if not _harmless(access, place, other, earlier_place, writes, unit):
                return other, access
        if ordered and access.writes and not access.atomic:
            frontier = []
        frontier.append((number, place))
    return None


def _harmless(
    access: Access, place: int, other: Access, other_place: int, writes: list[tuple[Access, int]], unit: int
) -> bool:
    """Whether every order gives the same: both write one value, or a program reads a value that it wrote, too."""
    if access.writes and other.writes:
        value = access.value(place, unit)
        return value is not None and value == other.value(other_place, unit)
    reader, writer, at = (other, access, place) if access.writes else (access, other, other_place)
    value = writer.value(at, unit)
    return value is not None and any(
        write.program == reader.program and write.value(p, unit) == value for write, p in writes
    )

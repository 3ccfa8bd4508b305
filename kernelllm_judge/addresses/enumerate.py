"""Computes the addresses of all programs of a launch at one size: who takes which element."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelllm_judge.addresses.expressions import Node, Numbers
from kernelllm_judge.addresses.scene import Placed, Scene

AT_ONCE = 1 << 20
"""Elements that are computed at once."""

MOST = 1 << 27
"""Elements of a launch, or of what it writes to, at most: 134 million."""


class TooMuch(Exception):
    """There is more to compute than fits; one phrase."""


@dataclass(frozen=True)
class Taken:
    """Elements that programs take by one access."""

    programs: npt.NDArray[np.int64]
    """The number of the program, for each element."""
    offsets: npt.NDArray[np.int64]
    """Bytes from the start of the storage."""
    places: npt.NDArray[np.int64]
    """Which lane and turn of a loop it is, as one number."""


@dataclass(frozen=True)
class Meeting:
    """Two programs that take the same element of a storage."""

    storage: int
    element: int
    first: Placed
    second: Placed
    programs: tuple[int, int]
    places: tuple[int, int]
    """The lane and turn of each, see ``Taken.places``."""


def fixed(node: Node) -> int:
    """Returns the value of a formula without variables."""
    assert node.kind == "constant"
    return node.number


def programs_of(scene: Scene) -> int:
    """Returns how many programs a launch has."""
    return math.prod(fixed(count) for count in scene.grid)


def elements(scene: Scene, placed: Placed) -> float:
    """Returns how many elements all programs take by an access; infinite where sizes are no numbers."""
    return math.inf if scene.dimensions else programs_of(scene) * _each(scene, placed)


def _each(scene: Scene, placed: Placed) -> float:
    turns = (max(1.0, scene.ranges.of(times)[1]) for times in placed.times)
    return math.prod(placed.access.shape) * math.prod(turns)


def index(scene: Scene, program: int) -> tuple[int, int, int]:
    """Returns a program's indices along the three axes."""
    x, y = fixed(scene.grid[0]), fixed(scene.grid[1])
    return program % x, program // x % y, program // (x * y)


def taken(scene: Scene, placed: Placed, budget: int = MOST) -> Iterator[Taken]:
    """Yields what an access takes, some programs at a time.

    Raises:
        TooMuch: there are too many elements.
        KeyError: it depends on what is not known.
    """
    count = programs_of(scene)
    if not count or any(
        guard.kind == "constant" and not guard.number for guard in (*placed.path, *placed.masks)
    ):
        return
    each = _each(scene, placed)
    if each * count > budget or each > 1 << 24:
        raise TooMuch(f"{each * count:,.0f} elements are too many to compute")
    turns = [int(scene.ranges.of(times)[1]) for times in placed.times]
    step = max(1, int(AT_ONCE // each))
    for first in range(0, count, step):
        yield _some(scene, placed, np.arange(first, min(first + step, count), dtype=np.int64), turns)


def _some(scene: Scene, placed: Placed, programs: npt.NDArray[np.int64], turns: list[int]) -> Taken:
    leaves = leaves_of(scene, placed, programs, turns)
    numbers = Numbers(leaves, scene.ranges)
    shape = np.broadcast_shapes(*(array.shape for array in leaves.values()))
    active = np.ones(shape, bool)
    for guard in (*placed.path, *placed.masks):
        active &= numbers.of(guard).astype(bool)
    target = placed.target
    assert target is not None
    start = numbers.of(target.start)
    offsets = np.broadcast_to(start + numbers.of(placed.offset) * placed.size, shape)
    owners = np.broadcast_to(programs.reshape(-1, *[1] * (len(shape) - 1)), shape)
    inner = math.prod(shape[1:])
    places = np.broadcast_to(np.arange(inner).reshape(1, *shape[1:]), shape)
    return Taken(owners[active], offsets[active], places[active])


def leaves_of(
    scene: Scene, placed: Placed, programs: npt.NDArray[np.int64], turns: list[int]
) -> dict[Node, npt.NDArray[np.int64]]:
    """Returns the values of an access's variables: programs, turns of loops and lanes, each along an axis of its own."""
    axes = 1 + len(turns) + len(placed.access.shape)
    make, grid = scene.make, [fixed(count) for count in scene.grid]

    def along(axis: int, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return values.reshape([-1 if i == axis else 1 for i in range(axes)])

    indices = (programs % grid[0], programs // grid[0] % grid[1], programs // (grid[0] * grid[1]))
    leaves = {make.leaf("program", axis, bits=32): along(0, values) for axis, values in enumerate(indices)}
    for number, ((count, _), turn) in enumerate(zip(placed.access.loops, turns, strict=True)):
        leaves[count] = along(1 + number, np.arange(turn, dtype=np.int64))
    for axis, size in enumerate(placed.access.shape):
        leaves[make.leaf("lane", axis, bits=32)] = along(
            1 + len(turns) + axis, np.arange(size, dtype=np.int64)
        )
    return leaves


@dataclass
class Sheet:
    """Who has taken which element of one storage in one launch."""

    storage: int
    unit: int
    """Bytes of an element."""
    owners: npt.NDArray[np.int32]
    """The program that wrote it; -1: none."""
    places: npt.NDArray[np.int32]
    """In which lane and turn of a loop."""
    accesses: npt.NDArray[np.int8]
    """By which of the accesses."""

    @classmethod
    def of(cls, storage: int, unit: int, size: int) -> Sheet:
        """Returns an empty one for a storage of so many bytes.

        Raises:
            TooMuch: it is too large.
        """
        count = size // unit
        if count > MOST:
            raise TooMuch(f"a tensor of {count:,} elements is too large to compute with")
        return cls(
            storage, unit, np.full(count, -1, np.int32), np.zeros(count, np.int32), np.zeros(count, np.int8)
        )

    def add(
        self, placed: Placed, some: Taken, by: Mapping[int, Placed], number: int, writes: bool
    ) -> Meeting | None:
        """Notes what an access takes; returns two programs that take the same element, one of them writing it.

        Args:
            by: the accesses so far, by their numbers.
            number: the access's own.
        """
        if placed.size != self.unit or (some.offsets % self.unit).any():
            raise TooMuch("elements of several sizes are written to one tensor")
        where = some.offsets // self.unit
        inside = (where >= 0) & (where < len(self.owners))
        where, programs = where[inside], some.programs[inside].astype(np.int32)
        places = some.places[inside].astype(np.int32)
        before, at = self.owners[where], self.places[where]
        clash = (before >= 0) & (before != programs)
        if writes and not clash.any():
            self.owners[where], self.places[where] = programs, places
            self.accesses[where] = number
            before, at = self.owners[where], self.places[where]
            clash = before != programs
        if not clash.any():
            return None
        first = int(np.flatnonzero(clash)[0])
        both = (int(before[first]), int(programs[first]))
        lanes = (int(at[first]), int(places[first]))
        return Meeting(self.storage, int(where[first]), by[self.accesses[where[first]]], placed, both, lanes)


def same_value(scene: Scene, meeting: Meeting) -> bool:
    """Whether two programs write one element with a value that comes from the same addresses and numbers in both."""
    placed = meeting.first
    if placed is not meeting.second or placed.value is None:
        return False
    chosen = []
    turns = [int(scene.ranges.of(times)[1]) for times in placed.times]
    for program, place in zip(meeting.programs, meeting.places, strict=True):
        values = dict(zip([("program", axis) for axis in range(3)], index(scene, program), strict=True))
        where = np.unravel_index(place, [*turns, *placed.access.shape] or [1])
        loops, lanes = where[: len(turns)], where[len(turns) :]
        by = {count: int(i) for (count, _), i in zip(placed.access.loops, loops, strict=True)}
        by |= {scene.make.leaf("lane", axis, bits=32): int(i) for axis, i in enumerate(lanes)}
        by |= {scene.make.leaf(kind, axis, bits=32): i for (kind, axis), i in values.items()}
        chosen.append({leaf: scene.make.constant(value) for leaf, value in by.items()})
    unknown = [node for node in placed.value.walk(into_any=True) if not node.known]
    parts = [placed.value, *(inner for node in unknown for inner in node.inner)]
    return all(
        scene.make.replace(part, chosen[0]) is scene.make.replace(part, chosen[1])
        for part in parts
        if part.known
    )

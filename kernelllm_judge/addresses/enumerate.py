"""Computes the addresses of all programs of a call at one size, and says what is wrong with them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernelllm_judge.addresses.calls import Call, Scene, Shown
from kernelllm_judge.addresses.expressions import Array, Node, evaluate
from kernelllm_judge.addresses.launches import Output
from kernelllm_judge.addresses.slices import Access

AT_ONCE = 1 << 20
"""Elements that are computed at once."""

MOST = 1 << 27
"""Elements of an access, or of a tensor, that are all looked at: 134 million; of more, some."""

LONGEST = 1 << 24
"""Elements that one program may take by an access, in all turns of its loops."""


class TooMuch(Exception):
    """There is more to compute than fits; one phrase."""


@dataclass(frozen=True)
class Taken:
    """Elements that programs take by one access."""

    programs: Array
    """The number of the program, for each element."""
    offsets: Array
    """Bytes from the start of the storage."""
    places: Array
    """Which lane and turn of a loop it is, as one number."""


@dataclass
class Enumerator:
    """Computes a call whose sizes are numbers, where that is not shown otherwise, until a deadline of this thread's time."""

    call: Call
    proven: Shown
    deadline: float
    shown: Shown = field(default_factory=Shown)

    def run(self) -> Shown:
        """Returns what is shown; the first mistake ends it."""
        for scene in self.call.distinct():
            for step in (self._bounds, self._races):
                step(scene)
                if self.shown.broken:
                    return self.shown
        for output in self.call.outputs:
            if output not in self.proven.done:
                self._whole(output)
        return self.shown

    def _bounds(self, scene: Scene) -> None:
        for access in scene.accesses:
            if access in self.proven.done:
                continue
            where = scene.line(access)
            if not access.exact:
                self.shown.leave("bounds", f"the address in {where} depends on data")
                continue
            size = fixed(access.bytes)
            try:
                for some in self._taken(scene, access):
                    bad = (some.offsets < 0) | (some.offsets + access.size > size)
                    if bad.any():
                        first = int(np.flatnonzero(bad)[0])
                        start = fixed(access.start)
                        verb = "reads" if access.kind == "load" else "writes"
                        self.shown.broken = (
                            f"{where} {verb} element {(int(some.offsets[first]) - start) // access.size:,} of "
                            f"{scene.tensor(access)}, which has {(size - start) // access.size:,} elements, in program "
                            f"{index(scene, int(some.programs[first]))}"
                        )
                        return
            except (TooMuch, KeyError) as why:
                self.shown.leave("bounds", f"{where}: {why}")

    def _races(self, scene: Scene) -> None:
        name = scene.kernel.name
        for storage, here, why in scene.written():
            if (scene, storage) in self.proven.done:
                continue
            if any(access.ordering for access in scene.accesses):
                why = why or f"programs of `{name}` may wait for each other"
            if not all(access.exact for access in here):
                why = why or f"whether programs of `{name}` meet in {scene.tensor(here[0])} depends on data"
            if why:
                self.shown.leave("races", why)
                continue
            try:
                self._meet(scene, sorted(here, key=lambda access: access.kind != "store"))
            except (TooMuch, KeyError) as late:
                self.shown.leave("races", f"`{name}`: {late}")

    def _meet(self, scene: Scene, here: Sequence[Access]) -> None:
        """Looks for two programs that take the same element, one of them writing it. ``here``: those that write first."""
        unit = here[0].size
        count = fixed(here[0].bytes) // unit
        if count > MOST:
            raise TooMuch(f"a tensor of {count:,} elements is too large to compute with")
        owners, lanes = np.full(count, -1, np.int32), np.zeros(count, np.int32)
        by = np.zeros(count, np.int8)
        for number, access in enumerate(here):
            for some in self._taken(scene, access):
                if access.size != unit or (some.offsets % unit).any():
                    raise TooMuch("elements of several sizes are written to one tensor")
                where = some.offsets // unit
                inside = (where >= 0) & (where < count)
                where, programs, places = (each[inside] for each in (where, some.programs, some.places))
                clash = (owners[where] >= 0) & (owners[where] != programs)
                before = owners[where], lanes[where], by[where]
                if access.kind == "store" and not clash.any():
                    owners[where], lanes[where], by[where] = programs, places, number
                    before = owners[where], lanes[where], by[where]
                    clash = before[0] != programs
                if not clash.any():
                    continue
                first = int(np.flatnonzero(clash)[0])
                one, other = int(before[0][first]), int(programs[first])
                writer = here[int(before[2][first])]
                at = (one, int(before[1][first])), (other, int(places[first]))
                if writer is access and _alike(scene, access, *at):
                    alike = f"programs of `{scene.kernel.name}` write the same elements, with the same values"
                    self.shown.leave("races", alike)
                    continue
                verb = "writes" if access.kind == "store" else "reads"
                self.shown.broken = (
                    f"programs of `{scene.kernel.name}` race for element {int(where[first]):,} of "
                    f"{scene.tensor(writer)}: program {index(scene, one)} writes it in line {writer.line}, "
                    f"program {index(scene, other)} {verb} it in line {access.line}"
                )
                return

    def _whole(self, output: Output) -> None:
        numbers, writers = self.call.numbers, list(self.call.writers(output))
        shape, strides = ([fixed(numbers[i]) for i in each] for each in (output.shape, output.strides))
        known = all(a.exact for s in self.call.launches for a in s.accesses if a.kind != "load")
        certain = known and not self.call.unknown
        try:
            size = max([fixed(access.bytes) for _, access in writers], default=0) // output.size
            if 0 in shape:
                return
            if not writers:
                if certain and self.call.launches:
                    self.shown.broken = f"no kernel writes {output.name}, whose memory is not initialised"
                raise TooMuch("nothing writes it")
            if size > MOST:
                raise TooMuch("it has too many elements to compute with")
            written = np.zeros(size, bool)
            for scene, access in writers:
                if access.exact and access.size != output.size:
                    raise TooMuch("it is written in elements of another size")
                for some in self._taken(scene, access) if access.exact else ():
                    where = some.offsets // output.size
                    written[where[(where >= 0) & (where < size)]] = True
            first = fixed(numbers[output.offset]) // output.size
            view = np.lib.stride_tricks.as_strided(written[first:], shape, strides, writeable=False)
            if not view.all():
                if not certain:
                    raise TooMuch("whether it is written whole depends on data")
                missing = int(np.argmin(view))
                self.shown.broken = f"no program writes element {missing:,} of {output.name}, which has {view.size:,} elements"
        except (TooMuch, KeyError) as why:
            self.shown.leave("outputs", f"{output.name}: {why}")

    def _taken(self, scene: Scene, access: Access) -> Iterator[Taken]:
        """Yields what an access takes, some programs at a time, the last ones first.

        Raises:
            TooMuch: there are too many elements, of which some were yielded.
            KeyError: it depends on what is not known.
        """
        count = math.prod(fixed(each) for each in scene.grid)
        times = _times(scene, access) if count else []
        each = math.prod((*access.shape, *times))
        if not count or not each or any(guard.value == 0 for guard in access.guards):
            return
        if each > LONGEST:
            raise TooMuch(f"{each:,} elements of a program are too many to compute")
        step = max(1, AT_ONCE // each)
        whole = each * count <= MOST
        for first in [max(0, count - step), *range(0, count if whole else step, step)]:
            if time.thread_time() > self.deadline:
                raise TooMuch("there was no time to compute all programs")
            yield _some(scene, access, np.arange(first, min(first + step, count), dtype=np.int64), times)
        if not whole:
            raise TooMuch(f"{each * count:,} elements are too many to compute")


def fixed(node: Node) -> int:
    """Returns the value of a formula without variables."""
    assert node.value is not None
    return node.value


def index(scene: Scene, program: int) -> tuple[int, int, int]:
    """Returns a program's indices along the three axes."""
    x, y = fixed(scene.grid[0]), fixed(scene.grid[1])
    return program % x, program // x % y, program // (x * y)


def _some(scene: Scene, access: Access, programs: Array, times: Sequence[int]) -> Taken:
    """Computes an access with programs, turns of loops and lanes each along an axis of its own."""
    shape = (len(programs), *times, *access.shape)
    x, y = fixed(scene.grid[0]), fixed(scene.grid[1])
    indices = (programs % x, programs // x % y, programs // (x * y))
    turns = [loop.count for loop in access.loops]
    variables = [*turns, *(scene.make.lane(axis) for axis in range(len(access.shape)))]
    leaves = {scene.make.program(axis): _along(0, each, shape) for axis, each in enumerate(indices)}
    for axis, variable in enumerate(variables, 1):
        leaves[variable] = _along(axis, np.arange(shape[axis]), shape)
    active = np.ones(shape, bool)
    for guard in access.guards:
        active &= evaluate(guard, leaves).astype(bool)
    start = fixed(access.start) + evaluate(access.offset, leaves) * access.size
    places = np.arange(math.prod(shape[1:])).reshape(1, *shape[1:])
    offsets, owners, places = (np.broadcast_to(e, shape) for e in (start, _along(0, programs, shape), places))
    return Taken(owners[active], offsets[active], places[active])


def _along(axis: int, values: Array, shape: Sequence[int]) -> Array:
    return values.reshape([-1 if i == axis else 1 for i in range(len(shape))])


def _times(scene: Scene, access: Access) -> list[int]:
    """Returns how often each loop runs at most: all programs and turns of outer loops are tried."""
    axes = [(scene.make.program(axis), fixed(count)) for axis, count in enumerate(scene.grid)]
    found: list[int] = []
    for loop in access.loops:
        parts = set(loop.times.walk())
        inside = [(leaf, count) for leaf, count in axes if leaf in parts]
        shape = [count for _, count in inside]
        if math.prod(shape) > LONGEST:
            raise TooMuch("how often a loop runs is too much to compute")
        leaves = {leaf: _along(i, np.arange(count), shape) for i, (leaf, count) in enumerate(inside)}
        found.append(int(evaluate(loop.times, leaves).max(initial=0)))
        axes.append((loop.count, found[-1]))
    return found


def _alike(scene: Scene, access: Access, *at: tuple[int, int]) -> bool:
    """Whether two programs store a value that comes from the same addresses and numbers in both; see ``Taken.places``."""
    if access.value is None:
        return False
    make, chosen = scene.make, []
    variables = [loop.count for loop in access.loops] + [make.lane(axis) for axis in range(len(access.shape))]
    for program, place in at:
        by = {make.program(axis): make.constant(i) for axis, i in enumerate(index(scene, program))}
        where = np.unravel_index(place, (*_times(scene, access), *access.shape) or (1,))
        chosen.append(by | {leaf: make.constant(int(i)) for leaf, i in zip(variables, where, strict=False)})
    unknown = [node for node in access.value.walk(into_any=True) if not node.known]
    parts = [access.value, *(inner for node in unknown for inner in node.inner)]
    return all(make.replace(p, chosen[0]) is make.replace(p, chosen[1]) for p in parts if p.known)

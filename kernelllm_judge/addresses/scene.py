"""One launch: its accesses, with arguments and grid as numbers, or as formulas over the sizes of named dimensions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelllm_judge.addresses.expressions import Expressions, Node, Numbers, Range, Ranges
from kernelllm_judge.addresses.slices import Access

PROGRAMS = 1 << 18
"""Programs of a launch that are tried one by one to bound what depends on them, at most."""


@dataclass(frozen=True)
class Target:
    """What a pointer among the arguments points to."""

    storage: int
    """Which of the run's."""
    start: Node
    """Bytes from the storage's first one."""
    bytes: Node
    """Of the storage."""


@dataclass(frozen=True, eq=False)
class Placed:
    """An access of a launch."""

    access: Access
    target: Target | None
    offset: Node
    """Elements from the start of the target."""
    path: tuple[Node, ...]
    masks: tuple[Node, ...]
    times: tuple[Node, ...]
    """How often each loop around it runs."""
    value: Node | None = None
    """What is stored."""

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.access.pointer.size

    @property
    def lanes(self) -> list[int]:
        """The axes of its block that have several elements."""
        return [axis for axis, size in enumerate(self.access.shape) if size > 1]


@dataclass(frozen=True, eq=False)
class Scene:
    """One launch in a part of the domain: at one size, or wherever dimensions lie in their ranges."""

    make: Expressions
    name: str
    """Of the kernel."""
    grid: tuple[Node, ...]
    """Three, which may be formulas."""
    dimensions: Mapping[Node, tuple[int, int]]
    """Leaves and their inclusive ranges; none where sizes are numbers."""
    placed: Sequence[Placed]
    spaces: Mapping[int, int]
    """By storage: elements' bytes of what is written there."""
    key: tuple[object, ...] = ()
    """Equal for launches that are settled alike."""

    @cached_property
    def ranges(self) -> Ranges:
        """Bounds all variables of the launch."""
        leaves: dict[Node, Range] = dict(self.dimensions)
        sizes = Ranges(leaves)
        for axis, count in enumerate(self.grid):
            leaves[self.make.leaf("program", axis, bits=32)] = (0, max(0, sizes.of(count)[1] - 1))
        for axis in range(8):  # as far as any access goes; each looks at its own
            leaves[self.make.leaf("lane", axis, bits=32)] = (
                0,
                max([1, *(p.access.shape[axis] for p in self.placed if len(p.access.shape) > axis)]) - 1,
            )
        for placed in self.placed:
            for (count, _), times in zip(placed.access.loops, placed.times, strict=True):
                leaves[count] = (0, max(0, Ranges(leaves).of(times)[1] - 1))
        return Ranges(leaves | self._computed(leaves))

    def _computed(self, leaves: Mapping[Node, Range]) -> dict[Node, Range]:
        """Bounds what depends on nothing but the program: which tile of a product it computes, say. All programs are tried."""
        counts = [count.number for count in self.grid]
        programs = math.prod(counts)
        if self.dimensions or not 1 < programs <= PROGRAMS:
            return {}
        flat = np.arange(programs, dtype=np.int64)
        indices = (flat % counts[0], flat // counts[0] % counts[1], flat // (counts[0] * counts[1]))
        known = {self.make.leaf("program", axis, bits=32): values for axis, values in enumerate(indices)}
        numbers = Numbers(known, Ranges(leaves))
        found: dict[Node, Range] = {}
        for placed in self.placed:
            for whole in (placed.offset, *placed.path, *placed.masks):
                for node in whole.walk():
                    if node.kind in ("div", "rem", "min", "max") and node not in found:
                        with contextlib.suppress(KeyError):
                            values = numbers.of(node)
                            found[node] = (int(values.min()), int(values.max()))
        return found


def scene_of(
    make: Expressions,
    name: str,
    accesses: Sequence[Access],
    arguments: Mapping[int, Node | Target],
    grid: Sequence[Node],
    dimensions: Mapping[Node, tuple[int, int]],
    key: tuple[object, ...] = (),
) -> Scene:
    """Puts a launch's arguments and grid into a kernel's accesses."""
    by: dict[Node, Node] = {}
    for number, value in arguments.items():
        if isinstance(value, Node):
            by |= {make.leaf("parameter", number, bits=bits): value for bits in (8, 16, 32, 64)}
            true = make.make("not", make.make("eq", value, make.constant(0)))
            by[make.leaf("parameter", number, bits=1)] = true
    by |= {make.leaf("programs", axis, bits=32): count for axis, count in enumerate(grid)}
    zero = make.constant(0)
    by |= {
        make.leaf("program", axis, bits=32): zero
        for axis, count in enumerate(grid)
        if count.kind == "constant" and count.number == 1
    }
    placed, spaces = [], {}
    for access in accesses:
        target = arguments.get(access.pointer.base)
        target = target if isinstance(target, Target) else None
        placed.append(
            Placed(
                access,
                target,
                make.replace(access.pointer.offset, by),
                tuple(made for guard in access.path if not _holds(made := make.replace(guard, by))),
                tuple(made for guard in access.masks if not _holds(made := make.replace(guard, by))),
                tuple(make.replace(times, by) for _, times in access.loops),
                access.value and make.replace(access.value, by),
            )
        )
        if target is not None and access.kind != "load":
            spaces[target.storage] = access.pointer.size
    return Scene(make, name, tuple(grid), dimensions, placed, spaces, key)


def _holds(node: Node) -> bool:
    return node.kind == "constant" and bool(node.number)

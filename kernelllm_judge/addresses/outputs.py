"""Shows that kernels write outputs whole, and holds what a call is settled from."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernelllm_judge.addresses.enumerate import MOST, TooMuch, fixed, taken
from kernelllm_judge.addresses.expressions import Node
from kernelllm_judge.addresses.polynomials import Polynomial, polynomial
from kernelllm_judge.addresses.prove import Prover
from kernelllm_judge.addresses.scene import Placed, Scene
from kernelllm_judge.addresses.solver import Place


@dataclass(frozen=True)
class Whole:
    """An output in memory in which PyTorch has written nothing, so that kernels must write all of it."""

    name: str
    storage: int
    start: Node
    """Bytes from the storage's start."""
    size: int
    """Bytes of an element."""
    shape: tuple[Node, ...]
    strides: tuple[Node, ...]


@dataclass(frozen=True)
class Scenes:
    """The launches of a call, and the outputs that they must write."""

    launches: Sequence[Scene]
    outputs: Sequence[Whole]
    names: Mapping[int, Sequence[str]]
    """By launch: the names of the kernel's parameters."""
    unknown: str = ""
    """Why some launch could not be followed; empty: all were."""


@dataclass
class Settled:
    """What is shown, and what is wrong."""

    open: dict[str, str] = field(default_factory=dict)
    """By aspect that is not shown: why."""
    broken: str = ""
    """What is wrong, where something is; for certain."""
    suspects: list[tuple[int, Placed, Place]] = field(default_factory=list)
    """Accesses that a solver found outside, with their launch, somewhere in the domain."""

    turning: list[Mapping[Node, int]] = field(default_factory=list)
    """Sizes at which what is not shown may turn out otherwise."""

    def leave(self, aspect: str, why: str) -> None:
        """Notes that an aspect is not shown."""
        self.open.setdefault(aspect, why)


def check_whole(
    scenes: Scenes, output: Whole, provers: Sequence[Prover], found: Settled, deadline: float
) -> None:
    """Checks that an output is written whole."""
    known: dict[Node, Polynomial] = {}
    count, strides = Polynomial.constant(1), []
    for size in reversed(output.shape):
        strides.append(count)
        count = count * polynomial(size, known)
    given = [polynomial(each, known) for each in reversed(output.strides)]
    sizes = [polynomial(each, known) for each in reversed(output.shape)]
    contiguous = all(a == b or size.number == 1 for a, b, size in zip(given, strides, sizes, strict=True))
    everyone = [
        (number, placed)
        for number, scene in enumerate(scenes.launches)
        for placed in scene.placed
        if placed.access.kind != "load"
        and placed.target is not None
        and placed.target.storage == output.storage
    ]
    for number, placed in everyone if contiguous else ():
        if not placed.access.exact or placed.size != output.size or placed.access.kind != "store":
            continue
        written = provers[number].written(placed)
        assert placed.target is not None
        if written is None or written.count is None:
            continue
        from_start = (
            polynomial(placed.target.start, known) + written.start * Polynomial.constant(placed.size)
        ) == polynomial(output.start, known)
        if from_start and (written.count == count):
            return
    if any(size.number == 0 for size in sizes):
        return
    if any(scene.dimensions for scene in scenes.launches):
        found.leave("outputs", f"no proof was found that {output.name} is written whole")
        return
    _count_whole(scenes, output, everyone, found, deadline)


def _count_whole(
    scenes: Scenes, output: Whole, everyone: Sequence[tuple[int, Placed]], found: Settled, deadline: float
) -> None:
    certain = not scenes.unknown and all(
        placed.access.exact
        for scene in scenes.launches
        for placed in scene.placed
        if placed.access.kind != "load"
    )
    try:
        if not everyone:
            if certain and scenes.launches:
                found.broken = f"no kernel writes {output.name}, whose memory is not initialised"
            found.leave("outputs", f"nothing writes {output.name}")
            return
        size = max(fixed(p.target.bytes) for _, p in everyone if p.target is not None)
        if size // output.size > MOST:
            raise TooMuch(f"{output.name} has too many elements to compute with")
        written = np.zeros(size // output.size, bool)
        for number, placed in everyone:
            if not placed.access.exact:
                continue
            if placed.size != output.size:
                raise TooMuch(f"{output.name} is written in elements of another size")
            for some in taken(scenes.launches[number], placed):
                if time.monotonic() > deadline:
                    raise TooMuch("there was no time to compute all programs")
                where = some.offsets // output.size
                written[where[(where >= 0) & (where < len(written))]] = True
    except (TooMuch, KeyError) as why:
        found.leave("outputs", f"{output.name}: {why}")
        return
    shape, strides = [fixed(each) for each in output.shape], [fixed(each) for each in output.strides]
    view = np.lib.stride_tricks.as_strided(
        written[fixed(output.start) // output.size :], shape, strides, writeable=False
    )
    if view.all():
        return
    if not certain:
        found.leave("outputs", f"whether {output.name} is written whole depends on data")
        return
    missing = [int(each) for each in np.unravel_index(int(np.argmin(view)), view.shape)]
    element = int(np.ravel_multi_index(missing, view.shape)) if missing else 0
    found.broken = f"no program writes element {element:,} of {output.name}, which has {view.size:,} elements"

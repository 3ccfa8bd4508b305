"""Settles one call, at one size or in a part of the domain: are its accesses inside, do programs meet, are outputs whole."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement

import numpy as np

from kernelllm_judge.addresses.enumerate import (
    Meeting,
    Sheet,
    TooMuch,
    elements,
    fixed,
    index,
    same_value,
    taken,
)
from kernelllm_judge.addresses.expressions import Node, Numbers
from kernelllm_judge.addresses.outputs import Scenes, Settled, check_whole
from kernelllm_judge.addresses.prove import Prover
from kernelllm_judge.addresses.scene import Placed, Scene
from kernelllm_judge.addresses.solver import Place

FEW = 1 << 21
"""Elements of an access that are computed sooner than a solver is asked."""

ASPECTS = ("bounds", "races", "outputs")


def settle(scenes: Scenes, deadline: float) -> Settled:
    """Settles a call. Where sizes are numbers, what no proof shows is computed."""
    found = Settled()
    if scenes.unknown:
        for aspect in ASPECTS:
            found.leave(aspect, scenes.unknown)
    provers = [Prover(scene, deadline) for scene in scenes.launches]
    for number, (scene, prover) in enumerate(zip(scenes.launches, provers, strict=True)):
        concrete = not scene.dimensions
        if scene.key and scene.key in [each.key for each in scenes.launches[:number]]:
            continue  # as the layers of a model
        for placed in scene.placed:
            _bounds(scenes, number, placed, prover, found, concrete)
            if found.broken:
                return found
        _races(scenes, number, prover, found, concrete, deadline)
        if found.broken:
            return found
    for output in scenes.outputs:
        check_whole(scenes, output, provers, found, deadline)
        if found.broken:
            return found
    if found.open:
        found.turning = [sizes for prover in provers if prover.scene.dimensions for sizes in prover.turning()]
    return found


def _say(scenes: Scenes, number: int, placed: Placed) -> str:
    return f"line {placed.access.line} of `{scenes.launches[number].name}`"


def _tensor(scenes: Scenes, number: int, placed: Placed) -> str:
    names = scenes.names[number]
    return (
        f"`{names[placed.access.pointer.base]}`" if 0 <= placed.access.pointer.base < len(names) else "memory"
    )


# ------------------------------------------------------------------------ bounds


def _bounds(
    scenes: Scenes, number: int, placed: Placed, prover: Prover, found: Settled, concrete: bool
) -> None:
    where = _say(scenes, number, placed)
    if placed.target is None or (not placed.offset.known and not placed.masks):
        found.leave("bounds", f"the address in {where} depends on data")
        return
    few = placed.access.exact and elements(scenes.launches[number], placed) <= FEW
    inside = prover.inside(placed, asking=not few)
    if inside is True:
        return
    if isinstance(inside, Place):
        if not placed.access.exact:
            found.leave("bounds", f"the address in {where} depends on data")
            return
        if not concrete:
            found.suspects.append((number, placed, inside))
        elif sentence := outside(scenes, number, placed, inside.leaves):
            found.broken = sentence
            return
    if concrete and placed.access.exact:
        _count_bounds(scenes, number, placed, found)
        return
    found.leave("bounds", f"no proof was found for {where}")


def _count_bounds(scenes: Scenes, number: int, placed: Placed, found: Settled) -> None:
    scene = scenes.launches[number]
    assert placed.target is not None
    size = fixed(placed.target.bytes)
    try:
        for some in taken(scene, placed):
            bad = (some.offsets < 0) | (some.offsets + placed.size > size)
            if bad.any():
                first = int(np.flatnonzero(bad)[0])
                program = index(scene, int(some.programs[first]))
                found.broken = _outside(scenes, number, placed, int(some.offsets[first]), program)
                return
    except (TooMuch, KeyError) as why:
        found.leave("bounds", f"{_say(scenes, number, placed)}: {why}")


def outside(scenes: Scenes, number: int, placed: Placed, leaves: Mapping[Node, int]) -> str:
    """Says what is wrong at one place, computed as a GPU does; empty where nothing is."""
    scene = scenes.launches[number]
    known = {leaf: np.asarray(value, np.int64) for leaf, value in leaves.items()}
    numbers = Numbers(known, scene.ranges)
    assert placed.target is not None
    try:
        if not all(bool(numbers.of(guard)) for guard in (*placed.path, *placed.masks)):
            return ""
        offset = int(numbers.of(placed.target.start)) + int(numbers.of(placed.offset)) * placed.size
    except KeyError:
        return ""
    if offset >= 0 and offset + placed.size <= fixed(placed.target.bytes):
        return ""
    axes = [int(leaves.get(scene.make.leaf("program", axis, bits=32), 0)) for axis in range(3)]
    return _outside(scenes, number, placed, offset, (axes[0], axes[1], axes[2]))


def _outside(scenes: Scenes, number: int, placed: Placed, offset: int, program: tuple[int, int, int]) -> str:
    assert placed.target is not None
    verb = "reads" if placed.access.kind == "load" else "writes"
    element = (offset - fixed(placed.target.start)) // placed.size
    count = (fixed(placed.target.bytes) - fixed(placed.target.start)) // placed.size
    return (
        f"{_say(scenes, number, placed)} {verb} element {element:,} of {_tensor(scenes, number, placed)}, which has "
        f"{count:,} elements, in program {program}"
    )


# ------------------------------------------------------------------------- races


def _races(
    scenes: Scenes, number: int, prover: Prover, found: Settled, concrete: bool, deadline: float
) -> None:
    scene = scenes.launches[number]
    writers = [p for p in scene.placed if p.access.kind == "store"]
    if lost := next((p for p in writers if p.target is None), None):
        found.leave("races", f"the address in {_say(scenes, number, lost)} depends on data")
        return
    waits = any(placed.access.ordering for placed in scene.placed)
    for storage in sorted({p.target.storage for p in writers if p.target is not None}):
        here = [p for p in scene.placed if p.target is None or p.target.storage == storage]
        lost = next((p for p in here if p.target is None or p.access.kind == "atomic"), None)
        if lost is not None:
            found.leave("races", f"{_say(scenes, number, lost)} may touch what programs write")
            continue
        pairs = [
            (a, b)
            for a, b in combinations_with_replacement(here, 2)
            if "store" in (a.access.kind, b.access.kind)
        ]
        few = all(p.access.exact and elements(scene, p) <= FEW for p in here)
        if all(_apart(prover, a, b, not few) for a, b in pairs):
            continue
        if waits:
            found.leave("races", f"programs of `{scene.name}` may wait for each other")
        elif concrete and all(placed.access.exact for placed in here):
            _count_races(scenes, number, storage, here, found, deadline)
        else:
            why = "depends on data" if not all(p.access.exact for p in here) else "found no proof"
            found.leave(
                "races",
                f"whether programs of `{scene.name}` meet in {_tensor(scenes, number, here[0])} {why}",
            )


def _apart(prover: Prover, first: Placed, second: Placed, asking: bool) -> bool:
    """Whether no two programs take one element, one by each access; ``asking`` says whether a solver is asked."""
    one, other = prover.written(first), prover.written(second)
    if one is not None and other is not None:
        assert first.target is not None and second.target is not None
        same_start = first.target.start is second.target.start and first.size == second.size
        if same_start and one.key == other.key:
            return True
    return asking and prover.meet(first, second) is False


def _count_races(
    scenes: Scenes, number: int, storage: int, here: Sequence[Placed], found: Settled, deadline: float
) -> None:
    scene = scenes.launches[number]
    try:
        sheet = _sheet(scene, storage)
        by = dict(enumerate(here))
        order = sorted(by, key=lambda each: by[each].access.kind != "store")
        for each in order:
            for some in taken(scene, by[each]):
                if time.monotonic() > deadline:
                    raise TooMuch("there was no time to compute all programs")
                meeting = sheet.add(by[each], some, by, each, by[each].access.kind == "store")
                if meeting is not None and not same_value(scene, meeting):
                    found.broken = _meeting(scenes, number, meeting)
                    return
                if meeting is not None:
                    found.leave(
                        "races", f"programs of `{scene.name}` write the same elements, with the same values"
                    )
    except (TooMuch, KeyError) as why:
        found.leave("races", f"`{scene.name}`: {why}")


def _sheet(scene: Scene, storage: int) -> Sheet:
    target = next(p.target for p in scene.placed if p.target is not None and p.target.storage == storage)
    return Sheet.of(storage, scene.spaces[storage], fixed(target.bytes))


def _meeting(scenes: Scenes, number: int, meeting: Meeting) -> str:
    scene = scenes.launches[number]
    first, second = (index(scene, program) for program in meeting.programs)
    verb = "writes" if meeting.second.access.kind == "store" else "reads"
    return (
        f"programs of `{scene.name}` race for element {meeting.element:,} of "
        f"{_tensor(scenes, number, meeting.first)}: program {first} writes it in line {meeting.first.access.line}, "
        f"program {second} {verb} it in line {meeting.second.access.line}"
    )

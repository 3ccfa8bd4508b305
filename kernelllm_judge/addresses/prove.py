"""Shows what it can of a call by comparing polynomials: at one size, or wherever dimensions lie in their ranges."""

from __future__ import annotations

import math
import time
from functools import cached_property
from itertools import combinations_with_replacement

from kernelllm_judge.addresses.calls import ASPECTS, Call, Scene, Shown
from kernelllm_judge.addresses.digits import Digits, Written
from kernelllm_judge.addresses.expressions import Node
from kernelllm_judge.addresses.launches import Output
from kernelllm_judge.addresses.polynomials import (
    ONE,
    Polynomial,
    Range,
    Signs,
    Variable,
    guards_of,
    polynomial,
)
from kernelllm_judge.addresses.slices import Access


class Proof:
    """What is shown of one access of a launch."""

    def __init__(self, call: Call, scene: Scene, access: Access, known: dict[Node, Polynomial]) -> None:
        """``known`` keeps polynomials of expressions."""
        self.access, self._known = access, known
        grid = [polynomial(count, known) for count in scene.grid]
        sizes: dict[Variable, Range] = {(d.kind, d.number): ends for d, ends in call.dimensions.items()}
        most = [max(0, Signs(sizes).of(count)[1] - 1) for count in grid]
        ranges = sizes | {("program", axis): (0, last) for axis, last in enumerate(most)}
        ranges |= {("lane", axis): (0, size - 1) for axis, size in enumerate(access.shape)}
        ranges |= {(loop.count.kind, loop.count.number): (0, math.inf) for loop in access.loops}
        for node in self._parts():
            if node.kind == "any" and node.bits < 64:
                half = 1 << node.bits - 1
                ranges["any", node.number] = (-half, half - 1) if node.bits > 1 else (0, 1)
        programs: set[Variable] = {("program", axis) for axis in range(3) if grid[axis].number != 1}
        extents: dict[Variable, Polynomial | None] = {each: grid[each[1]] for each in sorted(programs)}
        extents |= {(loop.count.kind, loop.count.number): None for loop in access.loops}
        lanes = {("lane", axis): size for axis, size in enumerate(access.shape) if size > 1}
        extents |= {lane: Polynomial.constant(size) for lane, size in lanes.items()}
        self.offset = polynomial(access.offset, known)
        self.plain = Digits(self.offset, [], extents, programs, Signs(ranges))
        # A loop's counter is below its end, even where that is computed with too few bits. Conditions count once they are exact.
        for loop in access.loops:
            if all(map(self._has_room, loop.bounds)):
                low, end, step = (polynomial(each, known) for each in loop.bounds)
                count = Polynomial.variable((loop.count.kind, loop.count.number))
                self.plain.guards.append(end - low - count * step - ONE)
        for guard in access.guards:
            self.plain.guards += guards_of(guard, known) if self._has_room(guard) else [None]
        self.exact = self._has_room(access.offset)
        """Whether all numbers of its offset have room in their bits, wherever it is reached."""

    def _parts(self) -> set[Node]:
        return {part for each in (self.access.offset, *self.access.guards) for part in each.walk()}

    def _has_room(self, whole: Node) -> bool:
        return all(self._fits(node) for node in whole.walk())

    def _fits(self, node: Node) -> bool:
        if node.kind in ("div", "rem"):
            a, b = (polynomial(each, self._known) for each in node.inner)
            return self.plain.implies(a) and self.plain.implies(b - ONE)
        if node.kind not in ("add", "sub", "mul", "wrap"):
            return True
        half, value = Polynomial.constant(1 << node.bits - 1), polynomial(node, self._known)
        return self.plain.implies(half - ONE - value) and self.plain.implies(value + half)

    @cached_property
    def digits(self) -> Digits | None:
        """Its digits, where those of an offset that is known are found."""
        if not self.exact or not self.access.offset.known:
            return None
        plain = self.plain
        guards = [guard and (guard if _exact(guard) else None) for guard in dict.fromkeys(plain.guards)]
        changed = Digits(plain.offset, guards, dict(plain.extents), set(plain.programs), plain.signs)
        changed.change()
        return changed

    @cached_property
    def written(self) -> Written | None:
        """How it takes elements, if each is taken by one program at most."""
        return None if self.digits is None else self.digits.written()

    def inside(self) -> bool:
        """Whether it is always inside its tensor."""
        if not self.exact or self.access.storage < 0:
            return False
        size, known = Polynomial.constant(self.access.size), self._known
        start, end = polynomial(self.access.start, known), polynomial(self.access.bytes, known)
        return any(
            digits.implies(start + digits.offset * size)
            and digits.implies(end - start - (digits.offset + ONE) * size)
            for digits in (self.plain, self.digits)
            if digits
        )


def _exact(guard: Polynomial) -> bool:
    return not any(variable[0] in ("any", "carried") for variable in guard.variables)


def prove(call: Call, deadline: float) -> Shown:
    """Says what is not shown of a call; nothing here is known to be wrong."""
    shown = Shown()
    known: dict[Node, Polynomial] = {}
    proofs: dict[Access, Proof] = {}
    if call.unknown:
        for aspect in ASPECTS:
            shown.leave(aspect, call.unknown)
    for scene in call.distinct():
        for access in scene.accesses:
            if time.thread_time() > deadline:
                for aspect in ASPECTS:
                    shown.leave(aspect, "there was no time for a proof")
                return shown
            proofs[access] = Proof(call, scene, access, known)
            if proofs[access].inside():
                shown.done.add(access)
            else:
                shown.leave("bounds", f"no proof was found for {scene.line(access)}")
        for storage, here, why in scene.written():
            pairs = combinations_with_replacement(here, 2)
            apart = [
                _apart(proofs[a], proofs[b]) for a, b in pairs if "store" in (a.kind, b.kind) and not why
            ]
            if why or not all(apart):
                meet = f"no proof was found that programs of `{scene.kernel.name}` do not meet in {scene.tensor(here[0])}"
                shown.leave("races", why or meet)
            else:
                shown.done.add((scene, storage))
    for output in call.outputs:
        if any(_whole(call, output, scene, access, known) for scene, access in call.writers(output)):
            shown.done.add(output)
        else:
            shown.leave("outputs", f"no proof was found that {output.name} is written whole")
    return shown


def _apart(one: Proof, other: Proof) -> bool:
    """Whether no two programs take one element, one by each access."""
    a, b = one.written, other.written
    same = one.access.start is other.access.start and one.access.size == other.access.size
    return a is not None and b is not None and same and a.key == b.key


def _whole(call: Call, output: Output, scene: Scene, access: Access, known: dict[Node, Polynomial]) -> bool:
    """Whether an access writes all of an output, whose elements lie one after the other."""
    if not access.exact or access.size != output.size or access.kind != "store":
        return False
    sizes, strides = (
        [polynomial(call.numbers[each], known) for each in places]
        for places in (output.shape, output.strides)
    )
    count = ONE
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if stride != count and size.number != 1:
            return False
        count = count * size
    written = Proof(call, scene, access, known).written
    if written is None or written.count is None:
        return False
    first = polynomial(access.start, known) + written.start * Polynomial.constant(access.size)
    return first == polynomial(call.numbers[output.offset], known) and written.count == count

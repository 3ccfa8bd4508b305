"""Asks z3 about the accesses of a launch: whether all are inside their tensors, and whether two programs can meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import z3

from kernelllm_judge.addresses.digits import Digits, Written, guards_of
from kernelllm_judge.addresses.expressions import LEAVES, Node
from kernelllm_judge.addresses.polynomials import Polynomial, Variable, polynomial
from kernelllm_judge.addresses.scene import Placed, Scene, Target
from kernelllm_judge.addresses.solver import Copy, Place, Solver


class Prover(Solver):
    """Answers for one scene, until a deadline."""

    def __init__(self, scene: Scene, deadline: float) -> None:
        """``deadline`` is a time of ``time.monotonic``."""
        super().__init__(scene, deadline)
        self._polynomials: dict[Node, Polynomial] = {}
        self._signs: dict[Polynomial, bool] = {}
        self._roomy: dict[Placed, bool | Place | None] = {}
        self._digits: dict[Placed, Digits | None] = {}

    def roomy(self, placed: Placed) -> bool:
        """Whether all numbers of an access have room in their bits, wherever it is reached."""
        if placed not in self._roomy:
            self._roomy[placed] = self._without_room(placed, self.copy(placed))
        return self._roomy[placed] is True

    def _without_room(self, placed: Placed, copy: Copy, asking: bool = True) -> bool | Place | None:
        """Where numbers have no room: True if nowhere."""
        for node in (placed.offset, *placed.path, *placed.masks):
            self.of(node, copy)
        if not copy.room or not asking:
            return not copy.room or None
        path = [self.as_kind(self.of(guard, copy), True) for guard in placed.path if guard.known]
        found, model = self.check([*copy.holds, *path, z3.Or(*(z3.Not(each) for each in copy.room))])
        return True if found == "unsat" else None if model is None else self.place(model, copy)

    def inside(self, placed: Placed, asking: bool = True) -> bool | Place | None:
        """Whether an access is always inside its tensor: True, where it is not, or None where that is not known.

        ``asking`` says whether a solver is asked where comparing polynomials does not show it.
        """
        target = placed.target
        if target is None:
            return None
        if not asking and self._without_room(placed, self.copy(placed), asking) is not True:
            return None
        if self.roomy(placed):
            if self._between_ends(placed, target):
                return True
            if not asking:
                return None
            loose = self._inside(placed, target, self.copy(placed, loose=True))
            return loose is True or self._inside(placed, target, self.copy(placed))
        if self._roomy[placed] is None:
            return None
        wrapping = self.copy(placed, wraps=True)
        found = self._inside(placed, target, wrapping)
        if found is True and self._without_room(placed, wrapping) is not True:
            return None
        return found

    def _between_ends(self, placed: Placed, target: Target) -> bool:
        """Whether an access is inside its tensor because its first and its last element are."""
        digits = self._digits_of(placed)
        ends = digits and digits.ends()
        if not ends:
            return False
        size, known = Polynomial.constant(placed.size), self._polynomials
        start = polynomial(target.start, known)
        last = polynomial(target.bytes, known) - size - start - ends[1] * size
        return self.not_negative(start + ends[0] * size) and self.not_negative(last)

    def _inside(self, placed: Placed, target: Target, copy: Copy) -> bool | Place | None:
        first = self.of(target.start, copy) + self.of(placed.offset, copy) * placed.size
        guards = [self.as_kind(self.of(guard, copy), True) for guard in (*placed.path, *placed.masks)]
        outside = z3.Or(first < 0, first + placed.size > self.of(target.bytes, copy))
        found, model = self.check([*copy.holds, *guards, outside])
        return True if found == "unsat" else None if model is None else self.place(model, copy)

    def meet(self, first: Placed, second: Placed) -> bool | None:
        """Whether two programs can take the same element, one by each access; None where that is not known."""
        if first.target is None or second.target is None:
            return None
        one, other = self.copy(first), self.copy(second)
        places, conditions = [], []
        for placed, copy in ((first, one), (second, other)):
            assert placed.target is not None
            places.append(self.of(placed.target.start, copy) + self.of(placed.offset, copy) * placed.size)
            conditions += [
                self.as_kind(self.of(guard, copy), True) for guard in (*placed.path, *placed.masks)
            ]
        programs = [self.scene.make.leaf("program", axis, bits=32) for axis in range(3)]
        apart = z3.Or(*(one.variables[each] != other.variables[each] for each in programs))
        overlap = z3.And(places[0] < places[1] + second.size, places[1] < places[0] + first.size)
        if first.size == second.size and first.target.start is second.target.start:
            offsets = [self.of(p.offset, c) for p, c in ((first, one), (second, other))]
            overlap = offsets[0] == offsets[1]
        found, _ = self.check([*one.holds, *other.holds, *conditions, apart, overlap])
        if found == "unsat" and self.roomy(first) and self.roomy(second):
            return False
        return True if found == "sat" else None

    def written(self, placed: Placed) -> Written | None:
        """Says how an access takes elements, if each is taken by one program at most; see ``digits``."""
        digits = self._digits_of(placed)
        return None if digits is None else digits.written()

    def _digits_of(self, placed: Placed) -> Digits | None:
        if placed not in self._digits:
            self._digits[placed] = self._found_digits(placed)
        return self._digits[placed]

    def _found_digits(self, placed: Placed) -> Digits | None:
        if not placed.offset.known or not self.roomy(placed):
            return None
        known = self._polynomials
        extents: dict[Variable, Polynomial | None] = {}
        grid = [polynomial(count, known) for count in self.scene.grid]
        programs: set[Variable] = {("program", axis) for axis in range(3) if grid[axis].number != 1}
        extents |= {("program", axis): grid[axis] for _, axis in sorted(programs)}
        renamed: dict[Variable, Polynomial] = {}
        for number, (count, _) in enumerate(placed.access.loops):
            extents["count", number] = None
            renamed["loop", count.number] = Polynomial.variable(("count", number))
        extents |= {("lane", axis): Polynomial.constant(placed.access.shape[axis]) for axis in placed.lanes}
        guards = guards_of((*placed.path, *placed.masks), known)
        digits = Digits(polynomial(placed.offset, known), guards, extents, programs, self.not_negative)
        digits.change(renamed)
        return digits

    def turning(self) -> Iterator[Mapping[Node, int]]:
        """Yields sizes for either outcome of each condition on sizes alone that an address depends on."""
        seen: set[Node] = set()
        for placed in self.scene.placed:
            for whole in (placed.offset, *placed.path, *placed.masks):
                for node in whole.walk():
                    if node.kind in ("lt", "le", "eq") and node not in seen and self._of_sizes(node):
                        seen.add(node)
                        yield from self._either_way(node)

    def _of_sizes(self, node: Node) -> bool:
        leaves = {each for each in node.walk() if each.kind in LEAVES}
        return bool(leaves) and leaves <= set(self.sizes)

    def _either_way(self, node: Node) -> Iterator[Mapping[Node, int]]:
        for truth in (True, False):
            copy = Copy(dict(self.sizes))
            test = self.as_kind(self.of(node, copy), True)
            _, model = self.check([*copy.holds, *copy.room, test == truth])
            if model is not None:
                yield self.place(model, copy).sizes

    def not_negative(self, each: Polynomial) -> bool:
        """Whether a polynomial over sizes is 0 or more at all of them."""
        if each.number is not None:
            return each.number >= 0
        if each not in self._signs:
            known: dict[Variable, Any] = {
                (leaf.kind, leaf.number): variable for leaf, variable in self.sizes.items()
            }
            holds: list[Any] = []
            try:
                made = self._sum(each, known, holds)
            except KeyError:
                return False
            self._signs[each] = self.check([*holds, made < 0])[0] == "unsat"
        return self._signs[each]

    def _sum(self, each: Polynomial, known: dict[Variable, Any], holds: list[Any]) -> Any:
        total = z3.IntVal(0, self.context)
        for key, value in each.terms:
            product = z3.IntVal(value, self.context)
            for variable in key:
                if variable not in known:
                    if variable[0] not in ("div", "rem"):
                        raise KeyError(variable[0])
                    a, b = (self._sum(part, known, holds) for part in variable[1:])
                    if not self.not_negative(variable[2] - Polynomial.constant(1)):
                        raise KeyError("a divisor that may be 0")
                    quotient, rest = self.new(), self.new()
                    holds += [a == quotient * b + rest, rest >= 0, rest < b]
                    known["div", *variable[1:]], known["rem", *variable[1:]] = quotient, rest
                product = product * known[variable]
            total = total + product
        return total

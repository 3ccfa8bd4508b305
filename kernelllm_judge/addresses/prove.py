"""Asks z3 about the accesses of a launch: whether all are inside their tensors, and whether two programs can meet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import z3

from kernelllm_judge.addresses.digits import Digits, Written, guards_of
from kernelllm_judge.addresses.expressions import LEAVES, Node
from kernelllm_judge.addresses.polynomials import Polynomial, Variable, polynomial
from kernelllm_judge.addresses.scene import Placed, Scene, Target

LONGEST = 400
"""Milliseconds that one question may take."""


@dataclass(frozen=True)
class Place:
    """One element that one program takes."""

    sizes: Mapping[Node, int]
    leaves: Mapping[Node, int]
    """The values of the access's variables."""


@dataclass
class Copy:
    """Names the variables of one access, as z3 knows them, with what holds of them."""

    variables: dict[Node, Any] = field(default_factory=dict)
    made: dict[Node, Any] = field(default_factory=dict)
    holds: list[Any] = field(default_factory=list)
    room: list[Any] = field(default_factory=list)
    """What must hold so that no number is cut to its bits, and quotients are what they seem."""
    wraps: bool = False
    """Whether numbers are cut to their bits, instead."""
    loose: bool = False
    """Whether of a remainder only its range is told: where that is enough, an answer comes much faster."""


class Prover:
    """Asks about one scene, until a deadline."""

    def __init__(self, scene: Scene, deadline: float) -> None:
        """``deadline`` is a time of ``time.monotonic``."""
        self.scene, self.deadline = scene, deadline
        self._context = z3.Context()
        self._names = 0
        self._sizes: dict[Node, Any] = {}
        self._ranges_of_sizes: list[Any] = []
        for leaf, (low, high) in scene.dimensions.items():
            variable = self._sizes[leaf] = self._new()
            self._ranges_of_sizes += [variable >= low, variable <= high]
        self._polynomials: dict[Node, Polynomial] = {}
        self._signs: dict[Polynomial, bool] = {}
        self._roomy: dict[Placed, bool | Place | None] = {}
        self._digits: dict[Placed, Digits | None] = {}

    def _new(self) -> Any:
        self._names += 1
        return z3.Int(f"v{self._names}", self._context)

    def check(self, conditions: Iterable[Any]) -> tuple[str, Any]:
        """Returns ``sat`` with a model, ``unsat``, or ``unknown``."""
        left = (self.deadline - time.monotonic()) * 1000
        if left < 1:
            return "unknown", None
        solver = z3.Solver(ctx=self._context)
        solver.set("timeout", int(min(LONGEST, max(left, 1))))
        solver.add(*self._ranges_of_sizes, *conditions)
        try:
            found = str(solver.check())
        except z3.Z3Exception:
            return "unknown", None
        return found, solver.model() if found == "sat" else None

    # ------------------------------------------------------------- expressions

    def _copy(self, placed: Placed, wraps: bool = False, loose: bool = False) -> Copy:
        copy, make = Copy(dict(self._sizes), wraps=wraps, loose=loose), self.scene.make
        for axis, count in enumerate(self.scene.grid):
            variable = copy.variables[make.leaf("program", axis, bits=32)] = self._new()
            copy.holds += [variable >= 0, variable < self.of(count, copy)]
        for axis, size in enumerate(placed.access.shape):
            variable = copy.variables[make.leaf("lane", axis, bits=32)] = self._new()
            copy.holds += [variable >= 0, variable < size]
        for count, _ in placed.access.loops:
            variable = copy.variables[count] = self._new()
            copy.holds.append(variable >= 0)
        return copy

    def of(self, node: Node, copy: Copy) -> Any:
        """Returns an expression as z3 has it."""
        if node in copy.variables:
            return copy.variables[node]
        if node not in copy.made:
            copy.made[node] = self._made(node, copy)
        return copy.made[node]

    def _made(self, node: Node, copy: Copy) -> Any:
        ranges = self.scene.ranges
        if node.kind == "constant":
            if node.bits == 1:
                return z3.BoolVal(bool(node.number), self._context)
            return z3.IntVal(node.number, self._context)
        if node.kind in LEAVES:
            variable = self._new()
            if node.bits == 1:
                return variable > 0
            if node.bits < 64:
                half = 1 << (node.bits - 1)
                copy.holds += [variable >= -half, variable < half]
            return variable
        if node.kind == "rem" and copy.loose and all(ranges.of(e)[0] >= i for i, e in enumerate(node.inner)):
            rest = self._new()
            copy.holds += [rest >= 0, rest < self.of(node.inner[1], copy)]
            return rest
        logical = node.kind in ("and", "or", "not")
        inner = [
            self._as(self.of(each, copy), logical or (node.kind == "if" and not i))
            for i, each in enumerate(node.inner)
        ]
        a, b = inner[0], inner[1] if len(inner) > 1 else inner[0]
        match node.kind:
            case "add":
                made = a + b
            case "sub":
                made = a - b
            case "mul":
                made = a * b
            case "div" | "rem":
                return self._quotient(node, a, b, copy)
            case "min":
                return z3.If(a <= b, a, b)
            case "max":
                return z3.If(a >= b, a, b)
            case "if":
                return z3.If(a, b, inner[2])
            case "lt":
                return a < b
            case "le":
                return a <= b
            case "eq":
                return a == b
            case "and":
                return z3.And(a, b)
            case "or":
                return z3.Or(a, b)
            case "not":
                return z3.Not(a)
            case "widen":
                copy.room.append(a >= 0)
                return a
            case _:
                made = a
        if not ranges.fits(node):
            half = 1 << (node.bits - 1)
            if copy.wraps:
                made = made - self._new() * (2 * half)
                copy.holds += [made >= -half, made < half]
            else:
                copy.room += [made >= -half, made < half]
        return made

    def _as(self, value: Any, truth: bool) -> Any:
        """Returns a value as a truth value, or as a number."""
        if z3.is_bool(value) == truth:
            return value
        return value != 0 if truth else z3.If(value, *(z3.IntVal(i, self._context) for i in (1, 0)))

    def _quotient(self, node: Node, a: Any, b: Any, copy: Copy) -> Any:
        """A quotient and a remainder of the same numbers share their variables."""
        make, ranges = self.scene.make, self.scene.ranges
        both = [make.make(kind, *node.inner, bits=node.bits) for kind in ("div", "rem")]
        if ranges.of(node.inner[1])[0] < 1:
            copy.room.append(b >= 1)
        if ranges.of(node.inner[0])[0] < 0:
            copy.room.append(a >= 0)
        quotient, rest = self._new(), self._new()
        copy.holds.append(z3.Implies(b >= 1, z3.And(a == quotient * b + rest, rest >= 0, rest < b)))
        copy.made |= dict(zip(both, (quotient, rest), strict=True))
        return copy.made[node]

    # ----------------------------------------------------------------- answers

    def roomy(self, placed: Placed) -> bool:
        """Whether all numbers of an access have room in their bits, wherever it is reached."""
        if placed not in self._roomy:
            self._roomy[placed] = self._without_room(placed, self._copy(placed))
        return self._roomy[placed] is True

    def _without_room(self, placed: Placed, copy: Copy, asking: bool = True) -> bool | Place | None:
        """Where numbers have no room: True if nowhere."""
        for node in (placed.offset, *placed.path, *placed.masks):
            self.of(node, copy)
        if not copy.room or not asking:
            return not copy.room or None
        path = [self._as(self.of(guard, copy), True) for guard in placed.path if guard.known]
        found, model = self.check([*copy.holds, *path, z3.Or(*(z3.Not(each) for each in copy.room))])
        return True if found == "unsat" else None if model is None else self._place(model, copy)

    def inside(self, placed: Placed, asking: bool = True) -> bool | Place | None:
        """Whether an access is always inside its tensor: True, where it is not, or None where that is not known.

        ``asking`` says whether a solver is asked where comparing polynomials does not show it.
        """
        target = placed.target
        if target is None:
            return None
        if not asking and self._without_room(placed, self._copy(placed), asking) is not True:
            return None
        if self.roomy(placed):
            if self._between_ends(placed, target):
                return True
            if not asking:
                return None
            loose = self._inside(placed, target, self._copy(placed, loose=True))
            return loose is True or self._inside(placed, target, self._copy(placed))
        if self._roomy[placed] is None:
            return None
        wrapping = self._copy(placed, wraps=True)
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
        guards = [self._as(self.of(guard, copy), True) for guard in (*placed.path, *placed.masks)]
        outside = z3.Or(first < 0, first + placed.size > self.of(target.bytes, copy))
        found, model = self.check([*copy.holds, *guards, outside])
        return True if found == "unsat" else None if model is None else self._place(model, copy)

    def _place(self, model: Any, copy: Copy) -> Place:
        def value(variable: Any) -> int:
            return int(model.eval(variable, model_completion=True).as_long())

        values = {leaf: value(variable) for leaf, variable in copy.variables.items()}
        sizes = {leaf: values[leaf] for leaf in self._sizes}
        return Place(sizes, values)

    def meet(self, first: Placed, second: Placed) -> bool | None:
        """Whether two programs can take the same element, one by each access; None where that is not known."""
        if first.target is None or second.target is None:
            return None
        one, other = self._copy(first), self._copy(second)
        places, conditions = [], []
        for placed, copy in ((first, one), (second, other)):
            assert placed.target is not None
            places.append(self.of(placed.target.start, copy) + self.of(placed.offset, copy) * placed.size)
            conditions += [self._as(self.of(guard, copy), True) for guard in (*placed.path, *placed.masks)]
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
        return bool(leaves) and leaves <= set(self._sizes)

    def _either_way(self, node: Node) -> Iterator[Mapping[Node, int]]:
        for truth in (True, False):
            copy = Copy(dict(self._sizes))
            test = self._as(self.of(node, copy), True)
            _, model = self.check([*copy.holds, *copy.room, test == truth])
            if model is not None:
                yield self._place(model, copy).sizes

    def not_negative(self, each: Polynomial) -> bool:
        """Whether a polynomial over sizes is 0 or more at all of them."""
        if each.number is not None:
            return each.number >= 0
        if each not in self._signs:
            known: dict[Variable, Any] = {
                (leaf.kind, leaf.number): variable for leaf, variable in self._sizes.items()
            }
            holds: list[Any] = []
            try:
                made = self._sum(each, known, holds)
            except KeyError:
                return False
            self._signs[each] = self.check([*holds, made < 0])[0] == "unsat"
        return self._signs[each]

    def _sum(self, each: Polynomial, known: dict[Variable, Any], holds: list[Any]) -> Any:
        total = z3.IntVal(0, self._context)
        for key, value in each.terms:
            product = z3.IntVal(value, self._context)
            for variable in key:
                if variable not in known:
                    if variable[0] not in ("div", "rem"):
                        raise KeyError(variable[0])
                    a, b = (self._sum(part, known, holds) for part in variable[1:])
                    if not self.not_negative(variable[2] - Polynomial.constant(1)):
                        raise KeyError("a divisor that may be 0")
                    quotient, rest = self._new(), self._new()
                    holds += [a == quotient * b + rest, rest >= 0, rest < b]
                    known["div", *variable[1:]], known["rem", *variable[1:]] = quotient, rest
                product = product * known[variable]
            total = total + product
        return total

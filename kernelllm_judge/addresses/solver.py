"""Asks z3 about the variables of a launch's accesses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import z3

from kernelllm_judge.addresses.expressions import LEAVES, Node
from kernelllm_judge.addresses.scene import Placed, Scene

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


class Solver:
    """Asks about one scene, until a deadline."""

    def __init__(self, scene: Scene, deadline: float) -> None:
        """``deadline`` is a time of ``time.monotonic``."""
        self.scene, self.deadline = scene, deadline
        self.context = z3.Context()
        self._names = 0
        self.sizes: dict[Node, Any] = {}
        self._ranges_of_sizes: list[Any] = []
        for leaf, (low, high) in scene.dimensions.items():
            variable = self.sizes[leaf] = self.new()
            self._ranges_of_sizes += [variable >= low, variable <= high]

    def new(self) -> Any:
        """Returns a new variable."""
        self._names += 1
        return z3.Int(f"v{self._names}", self.context)

    def check(self, conditions: Iterable[Any]) -> tuple[str, Any]:
        """Returns ``sat`` with a model, ``unsat``, or ``unknown``."""
        left = (self.deadline - time.monotonic()) * 1000
        if left < 1:
            return "unknown", None
        solver = z3.Solver(ctx=self.context)
        solver.set("timeout", int(min(LONGEST, max(left, 1))))
        solver.add(*self._ranges_of_sizes, *conditions)
        try:
            found = str(solver.check())
        except z3.Z3Exception:
            return "unknown", None
        return found, solver.model() if found == "sat" else None

    # ------------------------------------------------------------- expressions

    def copy(self, placed: Placed, wraps: bool = False, loose: bool = False) -> Copy:
        """Returns the variables of an access, each time others; for the rest see ``Copy``."""
        copy, make = Copy(dict(self.sizes), wraps=wraps, loose=loose), self.scene.make
        for axis, count in enumerate(self.scene.grid):
            variable = copy.variables[make.leaf("program", axis, bits=32)] = self.new()
            copy.holds += [variable >= 0, variable < self.of(count, copy)]
        for axis, size in enumerate(placed.access.shape):
            variable = copy.variables[make.leaf("lane", axis, bits=32)] = self.new()
            copy.holds += [variable >= 0, variable < size]
        for count, _ in placed.access.loops:
            variable = copy.variables[count] = self.new()
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
                return z3.BoolVal(bool(node.number), self.context)
            return z3.IntVal(node.number, self.context)
        if node.kind in LEAVES:
            variable = self.new()
            if node.bits == 1:
                return variable > 0
            if node.bits < 64:
                half = 1 << (node.bits - 1)
                copy.holds += [variable >= -half, variable < half]
            return variable
        if node.kind == "rem" and copy.loose and all(ranges.of(e)[0] >= i for i, e in enumerate(node.inner)):
            rest = self.new()
            copy.holds += [rest >= 0, rest < self.of(node.inner[1], copy)]
            return rest
        logical = node.kind in ("and", "or", "not")
        inner = [
            self.as_kind(self.of(each, copy), logical or (node.kind == "if" and not i))
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
                return z3.If(a < 0, a + (1 << node.bits), a)
            case _:
                made = a
        if not ranges.fits(node):
            half = 1 << (node.bits - 1)
            if copy.wraps:
                made = made - self.new() * (2 * half)
                copy.holds += [made >= -half, made < half]
            else:
                copy.room += [made >= -half, made < half]
        return made

    def as_kind(self, value: Any, truth: bool) -> Any:
        """Returns a value as a truth value, or as a number."""
        if z3.is_bool(value) == truth:
            return value
        return value != 0 if truth else z3.If(value, *(z3.IntVal(i, self.context) for i in (1, 0)))

    def _quotient(self, node: Node, a: Any, b: Any, copy: Copy) -> Any:
        """A quotient and a remainder of the same numbers share their variables."""
        make, ranges = self.scene.make, self.scene.ranges
        both = [make.make(kind, *node.inner, bits=node.bits) for kind in ("div", "rem")]
        if ranges.of(node.inner[1])[0] < 1:
            copy.room.append(b >= 1)
        if ranges.of(node.inner[0])[0] < 0:
            copy.room.append(a >= 0)
        quotient, rest = self.new(), self.new()
        copy.holds.append(z3.Implies(b >= 1, z3.And(a == quotient * b + rest, rest >= 0, rest < b)))
        copy.made |= dict(zip(both, (quotient, rest), strict=True))
        return copy.made[node]

    def place(self, model: Any, copy: Copy) -> Place:
        """Returns the values that a model has."""

        def value(variable: Any) -> int:
            return int(model.eval(variable, model_completion=True).as_long())

        values = {leaf: value(variable) for leaf, variable in copy.variables.items()}
        sizes = {leaf: values[leaf] for leaf in self.sizes}
        return Place(sizes, values)

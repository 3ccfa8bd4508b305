"""Polynomials over the variables of an address, in which equal expressions look the same, and their signs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernelllm_judge.addresses.expressions import BOOLEAN, Node

Variable = tuple[Any, ...]
"""A leaf, as ``("lane", 0)``, or an operation that is no polynomial, as ``("div", a, b)`` of two polynomials."""

Range = tuple[float, float]


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of variables, each with a whole number before it."""

    terms: tuple[tuple[tuple[Variable, ...], int], ...] = ()

    @classmethod
    def of(cls, terms: Mapping[tuple[Variable, ...], int]) -> Polynomial:
        """Returns a sum, in its one form."""
        return cls(tuple(sorted(((k, v) for k, v in terms.items() if v), key=repr)))

    @classmethod
    def constant(cls, value: int) -> Polynomial:
        """Returns a number."""
        return cls.of({(): value})

    @classmethod
    def variable(cls, variable: Variable) -> Polynomial:
        """Returns a variable."""
        return cls.of({(variable,): 1})

    def __add__(self, other: Polynomial) -> Polynomial:
        """Returns the sum."""
        terms = dict(self.terms)
        for key, value in other.terms:
            terms[key] = terms.get(key, 0) + value
        return Polynomial.of(terms)

    def __mul__(self, other: Polynomial) -> Polynomial:
        """Returns the product."""
        terms: dict[tuple[Variable, ...], int] = {}
        for a, x in self.terms:
            for b, y in other.terms:
                key = tuple(sorted((*a, *b), key=repr))
                terms[key] = terms.get(key, 0) + x * y
        return Polynomial.of(terms)

    def __sub__(self, other: Polynomial) -> Polynomial:
        """Returns the difference."""
        return self + other * Polynomial.constant(-1)

    @property
    def number(self) -> int | None:
        """Its value, if it has no variables."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @cached_property
    def variables(self) -> frozenset[Variable]:
        """All leaves in it, also inside operations."""
        found: set[Variable] = set()
        for variable in self.outer:
            inner = [part for part in variable if isinstance(part, Polynomial)]
            found.update(*(part.variables for part in inner)) if inner else found.add(variable)
        return frozenset(found)

    @property
    def outer(self) -> set[Variable]:
        """The variables that are multiplied in it."""
        return {variable for key, _ in self.terms for variable in key}

    def factor(self, variable: Variable) -> Polynomial | None:
        """Returns what a variable is multiplied with; None where it occurs in another way."""
        terms: dict[tuple[Variable, ...], int] = {}
        for key, value in self.terms:
            if variable in key:
                rest = list(key)
                rest.remove(variable)
                terms[tuple(rest)] = value
        found = Polynomial.of(terms)
        inside = any(variable in Polynomial.variable(each).variables for each in self.outer - {variable})
        return None if inside or variable in found.variables else found

    def divided(self, by: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Returns the terms that a product or number divides, without it, and the rest."""
        if len(by.terms) != 1:
            ratio = self._ratio(by)
            return (ratio, Polynomial()) if ratio else (Polynomial(), self)
        [(key, number)] = by.terms
        whole: dict[tuple[Variable, ...], int] = {}
        rest: dict[tuple[Variable, ...], int] = {}
        for mine, value in self.terms:
            left = list(mine)
            if value % number == 0 and all(left.count(v) >= key.count(v) for v in key):
                for variable in key:
                    left.remove(variable)
                whole[tuple(left)] = value // number
            else:
                rest[mine] = value
        return Polynomial.of(whole), Polynomial.of(rest)

    def _ratio(self, by: Polynomial) -> Polynomial | None:
        """Returns the number or product with which another one is multiplied."""
        if not by.terms or len(self.terms) % len(by.terms):
            return None
        for key, value in self.terms:
            whole, rest = Polynomial.of({key: value}).divided(Polynomial.of(dict(by.terms[:1])))
            if not rest.terms and whole * by == self:
                return whole
        return None

    def substituted(self, by: Mapping[Variable, Polynomial]) -> Polynomial:
        """Returns it with variables replaced, but not inside of operations."""
        total = Polynomial()
        for key, value in self.terms:
            product = Polynomial.constant(value)
            for variable in key:
                product = product * by.get(variable, Polynomial.variable(variable))
            total = total + product
        return total

    def replaced(
        self, by: Mapping[Variable, Polynomial], divide: Callable[[str, Polynomial, Polynomial], Polynomial]
    ) -> Polynomial:
        """Returns it with variables replaced; ``divide`` makes quotients and remainders."""
        return self.substituted({each: _one_replaced(each, by, divide) for each in self.outer})

    def operations(self) -> Iterator[Variable]:
        """Yields the quotients, remainders and others in it, inner ones first."""
        for variable in self.outer:
            for part in variable:
                if isinstance(part, Polynomial):
                    yield from part.operations()
            if any(isinstance(part, Polynomial) for part in variable):
                yield variable


ONE = Polynomial.constant(1)


def _one_replaced(
    variable: Variable,
    by: Mapping[Variable, Polynomial],
    divide: Callable[[str, Polynomial, Polynomial], Polynomial],
) -> Polynomial:
    if variable in by:
        return by[variable]
    parts = [part.replaced(by, divide) if isinstance(part, Polynomial) else part for part in variable]
    if variable[0] in ("div", "rem"):
        return divide(variable[0], parts[1], parts[2])
    return Polynomial.variable(tuple(parts))


def quotient(kind: str, a: Polynomial, b: Polynomial) -> Polynomial:
    """Returns a quotient or remainder, simplified where that needs to know nothing of variables."""
    if a.number is not None and b.number is not None and b.number > 0 and a.number >= 0:
        return Polynomial.constant(a.number // b.number if kind == "div" else a.number % b.number)
    whole, rest = a.divided(b)
    if not rest.terms:
        return whole if kind == "div" else Polynomial()
    return Polynomial.variable((kind, a, b))


def polynomial(node: Node, known: dict[Node, Polynomial]) -> Polynomial:
    """Returns an expression as a polynomial, as if all numbers had room. ``known`` keeps those of its parts."""
    if node not in known:
        if node.kind == "constant":
            known[node] = Polynomial.constant(node.number)
        elif not node.inner or node.kind in ("any", "carried"):
            known[node] = Polynomial.variable((node.kind, node.number))
        else:
            inner = [polynomial(each, known) for each in node.inner]
            match node.kind:
                case "add":
                    known[node] = inner[0] + inner[1]
                case "sub":
                    known[node] = inner[0] - inner[1]
                case "mul":
                    known[node] = inner[0] * inner[1]
                case "div" | "rem":
                    known[node] = quotient(node.kind, *inner)
                case "wrap":
                    known[node] = inner[0]
                case _:
                    known[node] = Polynomial.variable((node.kind, *inner, node.bits))
    return known[node]


def guards_of(guard: Node, known: dict[Node, Polynomial]) -> list[Polynomial | None]:
    """Returns a condition as polynomials that must be 0 or more; None: it has another form."""
    if guard.kind not in ("lt", "le", "eq"):
        return [None]
    low, high = (polynomial(each, known) for each in guard.inner)
    if guard.kind == "eq":
        return [high - low, low - high]
    return [high - low - ONE if guard.kind == "lt" else high - low]


class Signs:
    """Bounds polynomials, given the ranges of their variables."""

    def __init__(self, ranges: Mapping[Variable, Range]) -> None:
        """``ranges``: the lowest and the highest value of each leaf; others may be anything."""
        self._ranges = dict(ranges)
        self._signs: dict[Polynomial, bool] = {}

    def of(self, each: Polynomial) -> Range:
        """Returns bounds, infinite where nothing is known."""
        low: float = 0
        high: float = 0
        for key, value in each.terms:
            ends: Range = (value, value)
            for variable in key:
                products = [x * y if x and y else 0 for x in ends for y in self._of(variable)]
                ends = min(products), max(products)
            low, high = low + ends[0], high + ends[1]
        return low, high

    def _of(self, variable: Variable) -> Range:
        if variable not in self._ranges:
            kind = variable[0]
            found: Range = (-math.inf, math.inf)
            parts = [self.of(part) for part in variable if isinstance(part, Polynomial)]
            if kind in ("div", "rem") and self.divides(variable):
                (low, high), (least, most) = parts
                found = 0 if most == math.inf else low // most, high if high == math.inf else high // least
                found = found if kind == "div" else (0, min(high, most - 1))
            elif kind in ("min", "max"):
                choose = min if kind == "min" else max
                found = choose(parts[0][0], parts[1][0]), choose(parts[0][1], parts[1][1])
            elif kind == "if":
                found = min(parts[1][0], parts[2][0]), max(parts[1][1], parts[2][1])
            elif kind == "widen":
                found = parts[0] if parts[0][0] >= 0 else (0, 2 ** variable[-1])
            elif kind in BOOLEAN:
                found = 0, 1
            self._ranges[variable] = found
        return self._ranges[variable]

    def divides(self, operation: Variable) -> bool:
        """Whether a quotient or remainder is that of a number that is not negative by a positive one."""
        return self.not_negative(operation[1]) and self.not_negative(operation[2] - ONE)

    def not_negative(self, each: Polynomial) -> bool:
        """Whether a polynomial is known to be 0 or more."""
        if each.number is not None:
            return each.number >= 0
        if each not in self._signs:
            self._signs[each] = False  # while it is looked at
            self._signs[each] = any(self.of(form)[0] >= 0 for form in self._forms(each))
        return self._signs[each]

    def without_quotients(self, each: Polynomial) -> Polynomial:
        """Returns it with the products of a quotient and its divisor written as what is divided less the remainder."""
        for operation in sorted(each.outer, key=repr):
            if operation[0] == "div" and self.divides(operation):
                _, a, b = operation
                whole, _ = (each.factor(operation) or Polynomial()).divided(b)
                each = each + whole * (a - quotient("rem", a, b) - b * Polynomial.variable(operation))
        return each

    def _forms(self, each: Polynomial) -> Iterator[Polynomial]:
        """Yields it, also without quotients, and counted from the lowest values of variables."""
        for form in dict.fromkeys((each, self.without_quotients(each))):
            by = {}
            for variable in form.outer:
                low, high = self._of(variable)
                if low and abs(low) < math.inf:
                    self._ranges[rest := ("above", variable)] = (0, high - low)
                    by[variable] = Polynomial.variable(rest) + Polynomial.constant(int(low))
            yield form
            yield form.substituted(by)

"""Finds formulas over the sizes of named dimensions for the numbers of a launch, and checks each at every size that was tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product

from kernelllm_judge.addresses.expressions import Expressions, Node

DEGREE = 3
"""Dimensions that a term multiplies, at most."""

STEPS = tuple(1 << power for power in range(1, 18))
"""What a number of blocks is divided by."""

Vector = tuple[int, ...]
"""A number at all sizes."""


class Formulas:
    """Formulas that hold at all sizes of a list."""

    def __init__(
        self, make: Expressions, leaves: Mapping[str, Node], sizes: Sequence[Mapping[str, int]]
    ) -> None:
        """Prepares.

        Args:
            leaves: the dimensions that vary.
            sizes: those at which numbers are known.
        """
        self.make = make
        self._products: dict[Vector, Node] = {}
        most = max(1, len(sizes) - 1)  # one is left to check a sum with
        for degree in range(DEGREE + 1):
            for chosen in combinations_with_replacement(leaves, degree):
                node, vector = make.constant(1), tuple(1 for _ in sizes)
                for name in chosen:
                    node = make.make("mul", node, leaves[name])
                    vector = tuple(v * each[name] for v, each in zip(vector, sizes, strict=True))
                if len(self._products) < most:
                    self._products.setdefault(vector, node)
        self._known = dict(self._products)
        self._blocks: dict[Vector, Node] = {}

    def of(self, vectors: Sequence[Vector]) -> dict[Vector, Node]:
        """Returns formulas for numbers, so far as they are found: for polynomials first, of which others are blocks."""
        for vector in vectors:
            if vector not in self._known and (found := self._polynomial(vector)):
                self._known[vector] = found
        for step, (known, node) in product(STEPS, self._known.items()):  # small steps first: they divide more
            blocks = tuple(-(-v // step) for v in known)
            if len(set(blocks)) > 1:
                above = self.make.make("add", node, self.make.constant(step - 1))
                self._blocks.setdefault(blocks, self.make.make("div", above, self.make.constant(step)))
        for vector in vectors:
            if vector not in self._known and (found := next(self._in_blocks(vector), None)):
                self._known[vector] = found
        return self._known

    def _polynomial(self, vector: Vector) -> Node | None:
        """Solves for a sum of products of dimensions."""
        if len(set(vector)) == 1:
            return self.make.constant(vector[0])
        columns = list(self._products)
        rows = [[Fraction(v[i]) for v in columns] + [Fraction(x)] for i, x in enumerate(vector)]
        pivots: list[int] = []
        for column in range(len(columns)):
            top = len(pivots)
            found = next((r for r in range(top, len(rows)) if rows[r][column]), None)
            if found is None:
                continue
            rows[top], rows[found] = rows[found], rows[top]
            rows[top] = [x / rows[top][column] for x in rows[top]]
            for other in range(len(rows)):
                if other != top and (times := rows[other][column]):
                    rows[other] = [x - times * y for x, y in zip(rows[other], rows[top], strict=True)]
            pivots.append(column)
        rest = rows[len(pivots) :]
        factors = [row[-1] for row in rows[: len(pivots)]]
        if any(row[-1] for row in rest) or not rest:
            return None
        if any(factor.denominator != 1 for factor in factors):
            return None
        total = self.make.constant(0)
        for column, factor in zip(pivots, factors, strict=True):
            term = self.make.make("mul", self._products[columns[column]], self.make.constant(int(factor)))
            total = self.make.make("add", total, term)
        return total

    def _in_blocks(self, vector: Vector) -> Iterator[Node]:
        """Yields it as a number of blocks, a product with one, or the smaller or larger of a formula and a constant."""
        factors = {**self._known, **self._blocks}
        if vector in factors:
            yield factors[vector]
        for blocks, node in self._blocks.items():
            if all(b and v % b == 0 for v, b in zip(vector, blocks, strict=True)):
                rest = tuple(v // b for v, b in zip(vector, blocks, strict=True))
                other = self.make.constant(rest[0]) if len(set(rest)) == 1 else factors.get(rest)
                if other is not None:
                    yield self.make.make("mul", other, node)
        for kind, end, choose in (("min", max(vector), min), ("max", min(vector), max)):
            for known, node in factors.items():
                if all(choose(k, end) == v for k, v in zip(known, vector, strict=True)):
                    yield self.make.make(kind, node, self.make.constant(end))

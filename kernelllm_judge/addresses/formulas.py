"""Finds formulas over the sizes of named dimensions for the numbers of a launch, and checks each at every size that was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement

from kernelllm_judge.addresses.expressions import Expressions, Node

DEGREE = 3
"""Dimensions that a term multiplies, at most."""

STEPS = tuple(1 << power for power in range(1, 18))
"""What a number of blocks is divided by."""

Vector = tuple[int, ...]


class Formulas:
    """Formulas that hold at all sizes of a list."""

    def __init__(
        self,
        make: Expressions,
        leaves: Mapping[str, Node],
        sizes: Sequence[Mapping[str, int]],
        complete: bool,
    ) -> None:
        """Prepares.

        Args:
            leaves: the dimensions that vary.
            sizes: those at which numbers are known.
            complete: whether there are no others, so that any formula that holds at them is right.
        """
        self.make, self.sizes, self.complete = make, sizes, complete
        self._products: list[tuple[Vector, Node]] = []
        names = list(leaves)
        for degree in range(DEGREE + 1):
            for chosen in combinations_with_replacement(names, degree):
                if len(self._products) >= max(1, len(sizes) - (0 if complete else 1)):
                    break
                node, vector = make.constant(1), tuple(1 for _ in sizes)
                for name in chosen:
                    node = make.make("mul", node, leaves[name])
                    vector = tuple(v * each[name] for v, each in zip(vector, sizes, strict=True))
                if vector not in [v for v, _ in self._products]:
                    self._products.append((vector, node))
        self._known: dict[Vector, Node] = dict(self._products)
        self._blocks: dict[Vector, Node] | None = None

    def learn(self, vectors: Sequence[Vector]) -> None:
        """Finds the polynomials among some numbers, of which others may be blocks."""
        for vector in vectors:
            if vector not in self._known and (found := self._polynomial(vector)) is not None:
                self._known[vector] = found

    def of(self, vector: Vector) -> Node | None:
        """Returns a formula for a number that is known at all sizes; None if none is found."""
        if len(set(vector)) == 1:
            return self.make.constant(vector[0])
        if vector in self._known:
            return self._known[vector]
        self.learn([vector])
        found = self._known.get(vector) or self._in_blocks(vector)
        if found is not None:
            self._known[vector] = found
        return found

    def _polynomial(self, vector: Vector) -> Node | None:
        """Solves for a sum of products of dimensions."""
        rows = [[Fraction(v[i]) for v, _ in self._products] + [Fraction(x)] for i, x in enumerate(vector)]
        pivots: list[int] = []
        for column in range(len(self._products)):
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
        if any(row[-1] for row in rest) or not (rest or self.complete):
            return None
        total = self.make.constant(0)
        for column, row in zip(pivots, rows, strict=False):
            if row[-1].denominator != 1:
                return None
            factor = self.make.constant(int(row[-1]))
            term = self.make.make("mul", self._products[column][1], factor)
            total = self.make.make("add", total, term) if factor.number else total
        return total

    def _in_blocks(self, vector: Vector) -> Node | None:
        """Finds a number of blocks, a product with one, or the smaller or larger of a polynomial and a constant."""
        if self._blocks is None:
            self._blocks = {}
            for known, node in list(self._known.items()):
                for step in STEPS:
                    rounded = self.make.make("add", node, self.make.constant(step - 1))
                    block = self.make.make("div", rounded, self.make.constant(step))
                    blocks = tuple(-(-v // step) for v in known)
                    if len(set(blocks)) > 1:
                        self._blocks.setdefault(blocks, block)
        if vector in self._blocks:
            return self._blocks[vector]
        factors = {**self._known, **self._blocks}
        for blocks, node in self._blocks.items():
            if all(b and v % b == 0 for v, b in zip(vector, blocks, strict=True)):
                rest = tuple(v // b for v, b in zip(vector, blocks, strict=True))
                other = self.make.constant(rest[0]) if len(set(rest)) == 1 else factors.get(rest)
                if other is not None:
                    return self.make.make("mul", other, node)
        for kind, end, choose in (("min", max(vector), min), ("max", min(vector), max)):
            for known, node in factors.items():
                if all(choose(k, end) == v for k, v in zip(known, vector, strict=True)):
                    return self.make.make(kind, node, self.make.constant(end))
        return None

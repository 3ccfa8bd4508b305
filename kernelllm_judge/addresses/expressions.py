"""Integer expressions of a kernel: what an address is made of, in 32 or 64 bits, and what they come to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

LEAVES = frozenset(
    {"parameter", "dimension", "program", "programs", "lane", "loop", "every", "any", "carried"}
)
"""A scalar argument, a named dimension's size, a program's index and their number along an axis, an index into a block, a loop's
count, all of a block's indices, a value that is not known (loaded, or computed by what is not followed), and what a loop carries
while it is looked at."""

BOOLEAN = frozenset({"lt", "le", "eq", "and", "or", "not"})

Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Node:
    """One expression. Equal ones of the same ``Expressions`` are the same object."""

    kind: str
    inner: tuple[Node, ...] = ()
    number: int = 0
    """A constant's value, or which leaf of its kind it is."""
    bits: int = 64
    """In which it is computed; 1 is a truth value."""

    def walk(self, into_any: bool = False) -> Iterator[Node]:
        """Yields it and all that it is made of, each once; what a value that is not known came from only if asked."""
        seen: set[Node] = set()
        stack = [self]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                yield node
                if into_any or node.kind != "any":
                    stack += node.inner

    @cached_property
    def known(self) -> bool:
        """Whether nothing in it is unknown."""
        return not any(node.kind in ("any", "carried") for node in self.walk())

    @property
    def value(self) -> int | None:
        """What a constant is; None for others."""
        return self.number if self.kind == "constant" else None


class Expressions:
    """Makes expressions, simplified."""

    def __init__(self) -> None:
        """There are none yet."""
        self._table: dict[tuple[object, ...], Node] = {}
        self.fresh = 0
        """How many unknown values and loops there are."""

    def leaf(self, kind: str, number: int, inner: tuple[Node, ...] = (), bits: int = 64) -> Node:
        """Returns a leaf."""
        return self._table.setdefault((kind, inner, number, bits), Node(kind, inner, number, bits))

    def unknown(self, inner: Iterable[Node] = (), bits: int = 64) -> Node:
        """Returns a new value that is not known, and came from others."""
        self.fresh += 1
        return self.leaf("any", self.fresh, tuple(inner), bits)

    def constant(self, value: int, bits: int = 64) -> Node:
        """Returns a constant."""
        return self.leaf("constant", int(value), bits=1 if bits == 1 else 64)

    def program(self, axis: int) -> Node:
        """Returns a program's index along an axis."""
        return self.leaf("program", axis, bits=32)

    def lane(self, axis: int) -> Node:
        """Returns the index into a block along an axis."""
        return self.leaf("lane", axis, bits=32)

    def make(self, kind: str, *inner: Node, bits: int = 64) -> Node:
        """Returns an operation on expressions: the kinds that ``compute`` knows."""
        bits = 1 if kind in BOOLEAN else bits
        if all(node.kind == "constant" for node in inner):
            values = [np.asarray(node.number, np.int64) for node in inner]
            return self.constant(int(compute(kind, values, bits)), bits)
        first, second = inner[0], inner[1] if len(inner) > 1 else inner[0]
        match kind, first.value, second.value:
            case ("add" | "or", 0, _) | ("mul" | "and", 1, _):
                return second
            case ("add" | "sub" | "or", _, 0) | ("mul" | "div" | "and", _, 1):
                return first
            case ("mul" | "and", 0, _) | ("or", 1, _):
                return first
            case ("mul" | "and", _, 0) | ("or", _, 1):
                return second
            case ("if", int(chosen), _):
                return inner[1] if chosen else inner[2]
        if kind == "not" and first.kind == "not":
            return first.inner[0]
        if kind == "not" and first.kind in ("lt", "le"):
            return self.make("le" if first.kind == "lt" else "lt", first.inner[1], first.inner[0])
        if kind == "if" and second is inner[2]:
            return second
        if kind == "sub" and first is second:
            return self.constant(0)
        if kind == "widen" and first.bits == 1:
            return self.make("if", first, self.constant(1), self.constant(0))
        return self.leaf(kind, 0, inner, bits)

    def replace(self, node: Node, by: Mapping[Node, Node]) -> Node:
        """Returns an expression with some of its parts replaced. A value that is not known becomes another one."""
        done: dict[Node, Node] = dict(by)
        mark = frozenset(by.items())

        def of(node: Node) -> Node:
            if node not in done:
                if node.kind == "any":
                    key = ("replaced", node, mark)
                    if key not in self._table:
                        self._table[key] = self.unknown(map(of, node.inner), node.bits)
                    done[node] = self._table[key]
                elif not node.inner:
                    done[node] = node
                elif node.kind in LEAVES:
                    done[node] = self.leaf(node.kind, node.number, tuple(map(of, node.inner)), node.bits)
                else:
                    done[node] = self.make(node.kind, *map(of, node.inner), bits=node.bits)
            return done[node]

        return of(node)


def conjuncts(node: Node) -> Iterator[Node]:
    """Yields the conditions that must all hold for one to hold."""
    if node.kind == "and":
        for inner in node.inner:
            yield from conjuncts(inner)
    elif not node.value:
        yield node


def compute(kind: str, values: list[Array], bits: int) -> Array:
    """Computes an operation as a GPU does: in so many bits."""
    a, b = values[0], values[1] if len(values) > 1 else values[0]
    with np.errstate(over="ignore"):
        match kind:
            case "add":
                result = a + b
            case "sub":
                result = a - b
            case "mul":
                result = a * b
            case "div" | "rem":
                safe = np.where(b == 0, 1, b)
                quotient = np.abs(a) // np.abs(safe)
                quotient = np.where((a < 0) != (safe < 0), -quotient, quotient)
                result = quotient if kind == "div" else a - quotient * safe
            case "min":
                result = np.minimum(a, b)
            case "max":
                result = np.maximum(a, b)
            case "lt":
                return np.asarray(a < b)
            case "le":
                return np.asarray(a <= b)
            case "eq":
                return np.asarray(a == b)
            case "and":
                return np.asarray((a != 0) & (b != 0))
            case "or":
                return np.asarray((a != 0) | (b != 0))
            case "not":
                return np.asarray(a == 0)
            case "if":
                result = np.where(a != 0, b, values[2])
            case "wrap":
                result = a
            case "widen":
                return np.where(a < 0, a + (1 << bits), a) if bits < 64 else a
            case _:
                raise KeyError(kind)
        return np.asarray(result).astype(f"int{bits}").astype(np.int64) if bits > 1 else np.asarray(result)


def evaluate(node: Node, known: dict[Node, Array]) -> Array:
    """Computes an expression where its leaves have values, which are arrays that broadcast. ``known`` keeps those of its parts.

    Raises:
        KeyError: something in it is not known.
    """
    if node not in known:
        if node.kind in LEAVES:
            raise KeyError(node.kind)
        if node.kind == "constant":
            known[node] = np.asarray(node.number, np.int64)
        else:
            known[node] = compute(node.kind, [evaluate(each, known) for each in node.inner], node.bits)
    return known[node]

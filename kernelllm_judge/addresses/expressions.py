"""Integer expressions of a kernel: what an address is made of, in 32 or 64 bits, with what can be said and computed of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEAVES = frozenset(
    {"parameter", "dimension", "program", "programs", "lane", "loop", "every", "any", "carried"}
)
"""A scalar argument, a named dimension's size, a program's index and their number along an axis, an index into a block, a loop's
count, all of a block's indices, a value that is not known (loaded, or computed by what is not followed), and what a loop carries
while it is looked at."""

BOOLEAN = frozenset({"lt", "le", "eq", "and", "or", "not"})
_LOW, _HIGH = -math.inf, math.inf

Array = npt.NDArray[np.int64] | npt.NDArray[np.bool_]
Range = tuple[float, float]


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

    @property
    def known(self) -> bool:
        """Whether nothing in it is unknown."""
        return not any(node.kind in ("any", "carried") for node in self.walk())


class Expressions:
    """Makes expressions, simplified."""

    def __init__(self) -> None:
        """There are none yet."""
        self._table: dict[tuple[object, ...], Node] = {}
        self.fresh = 0
        """How many unknown values and loops there are."""

    def leaf(self, kind: str, number: int, inner: tuple[Node, ...] = (), bits: int = 64) -> Node:
        """Returns a leaf."""
        return self._node(kind, inner, number, bits)

    def unknown(self, inner: Iterable[Node] = (), bits: int = 64) -> Node:
        """Returns a new value that is not known, and came from others."""
        self.fresh += 1
        return self._node("any", tuple(inner), self.fresh, bits)

    def constant(self, value: int, bits: int = 64) -> Node:
        """Returns a constant."""
        return self._node("constant", (), int(value), 1 if bits == 1 else 64)

    def _node(self, kind: str, inner: tuple[Node, ...], number: int, bits: int) -> Node:
        key = (kind, tuple(map(id, inner)), number, bits)
        return self._table.setdefault(key, Node(kind, inner, number, bits))

    def make(self, kind: str, *inner: Node, bits: int = 64) -> Node:
        """Returns an operation on expressions: the kinds that ``compute`` knows."""
        if all(node.kind == "constant" for node in inner):
            with np.errstate(all="ignore"):
                value = compute(
                    kind, [np.asarray(node.number, np.int64) for node in inner], bits, (_LOW, _HIGH)
                )
            return self.constant(int(value), 1 if kind in BOOLEAN else bits)
        bits = 1 if kind in BOOLEAN else bits
        first, *rest = inner
        second = rest[0] if rest else first
        match kind, _value(first), _value(second):
            case "add", 0, _:
                return second
            case (("add" | "sub"), _, 0):
                return first
            case "mul", 0, _:
                return first
            case "mul", _, 0:
                return second
            case "mul", 1, _:
                return second
            case (("mul" | "div"), _, 1):
                return first
            case "rem", _, 1:
                return self.constant(0)
            case "and", 1, _:
                return second
            case "and", _, 1:
                return first
            case ("and", 0, _) | ("or", 1, _):
                return first
            case ("and", _, 0) | ("or", _, 1):
                return second
            case "or", 0, _:
                return second
            case "or", _, 0:
                return first
        if kind == "not" and first.kind == "not":
            return first.inner[0]
        if kind == "not" and first.kind in ("lt", "le"):
            return self.make("le" if first.kind == "lt" else "lt", first.inner[1], first.inner[0])
        if kind == "if":
            if (chosen := _value(first)) is not None:
                return inner[1] if chosen else inner[2]
            if inner[1] is inner[2]:
                return inner[1]
        if kind == "sub" and first is second:
            return self.constant(0)
        if kind == "widen" and first.bits == 1:
            return self.make("if", first, self.constant(1), self.constant(0))
        return self._node(kind, inner, 0, bits)

    def replace(self, node: Node, by: Mapping[Node, Node]) -> Node:
        """Returns an expression with some of its parts replaced. A value that is not known becomes another one."""
        done: dict[Node, Node] = dict(by)
        mark = tuple(sorted((id(k), id(v)) for k, v in by.items()))

        def of(node: Node) -> Node:
            if node not in done:
                if node.kind == "any":
                    key = ("replaced", id(node), mark)
                    if key not in self._table:
                        self._table[key] = self.unknown(map(of, node.inner), node.bits)
                    done[node] = self._table[key]
                elif not node.inner:
                    done[node] = node
                elif node.kind in LEAVES:
                    done[node] = self._node(node.kind, tuple(map(of, node.inner)), node.number, node.bits)
                else:
                    done[node] = self.make(node.kind, *map(of, node.inner), bits=node.bits)
            return done[node]

        return of(node)


def _value(node: Node) -> int | None:
    return node.number if node.kind == "constant" else None


def conjuncts(node: Node) -> Iterator[Node]:
    """Yields the conditions that must all hold for one to hold."""
    if node.kind == "and":
        for inner in node.inner:
            yield from conjuncts(inner)
    elif not (node.kind == "constant" and node.number):
        yield node


def compute(
    kind: str, values: list[npt.NDArray[np.int64]], bits: int, inside: Range
) -> npt.NDArray[np.int64]:
    """Computes an operation as a GPU does; ``inside`` is where the exact result lies, if that is known."""
    a, b = values[0], values[1] if len(values) > 1 else values[0]
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
            return np.where(a < 0, a + (1 << bits), a)
        case _:
            raise KeyError(kind)
    half = 1 << (bits - 1)
    if bits >= 64 or (-half <= inside[0] and inside[1] < half):
        return np.asarray(result)
    return np.asarray(((result + half) & ((1 << bits) - 1)) - half)


class Ranges:
    """Bounds the values of expressions, given those of their leaves."""

    def __init__(self, leaves: Mapping[Node, Range]) -> None:
        """``leaves``: their lowest and highest values."""
        self._known: dict[Node, Range] = dict(leaves)

    def exact(self, node: Node) -> Range:
        """Returns where an operation's result lies before it is cut to its bits."""
        a = self.of(node.inner[0])
        b = self.of(node.inner[1]) if len(node.inner) > 1 else a
        match node.kind:
            case "add":
                return a[0] + b[0], a[1] + b[1]
            case "sub":
                return a[0] - b[1], a[1] - b[0]
            case "mul":
                ends = [x * y if x and y else 0.0 for x in a for y in b]
                return min(ends), max(ends)
            case "div" if b[0] >= 1:
                ends = [_divided(x, y) for x in a for y in b]
                return min(ends), max(ends)
            case "rem" if b[0] >= 1:
                most = min(b[1] - 1, max(abs(a[0]), abs(a[1])))
                return (0 if a[0] >= 0 else -most), (0 if a[1] <= 0 else most)
            case "min":
                return min(a[0], b[0]), min(a[1], b[1])
            case "max":
                return max(a[0], b[0]), max(a[1], b[1])
            case "if":
                c = self.of(node.inner[2])
                return min(b[0], c[0]), max(b[1], c[1])
            case "wrap":
                return a
            case "widen":
                return a if a[0] >= 0 else (0, 2.0**node.bits)
        return _LOW, _HIGH

    def of(self, node: Node) -> Range:
        """Returns the lowest and the highest value, infinite where nothing is known."""
        if node not in self._known:
            if node.kind == "constant":
                found: Range = (node.number, node.number)
            elif node.bits == 1:
                found = (0, 1)
            elif node.kind in LEAVES:
                found = (0, _HIGH) if node.kind not in ("parameter", "any", "carried") else (_LOW, _HIGH)
            else:
                found = self.exact(node)
                half = 2.0 ** (node.bits - 1)
                if node.kind != "widen" and node.bits < 64 and not -half <= found[0] <= found[1] < half:
                    found = (-half, half - 1)
            self._known[node] = found
        return self._known[node]

    def fits(self, node: Node) -> bool:
        """Whether an operation's result needs no more than its bits."""
        low, high = self.exact(node)
        half = 2.0 ** (node.bits - 1)
        return -half <= low and high < half


def _divided(a: float, b: float) -> float:
    if math.isinf(a):
        return a
    return (
        0.0
        if math.isinf(b)
        else float(
            math.trunc(a / b) if abs(a) > 2**52 else int(a) // int(b) if a >= 0 else -(int(-a) // int(b))
        )
    )


class Numbers:
    """Computes expressions where their leaves have values."""

    def __init__(self, leaves: Mapping[Node, npt.NDArray[np.int64]], ranges: Ranges) -> None:
        """``leaves`` may be arrays that broadcast; ``ranges`` bounds the same leaves."""
        self._known: dict[Node, npt.NDArray[np.int64]] = dict(leaves)
        self._ranges = ranges

    def of(self, node: Node) -> npt.NDArray[np.int64]:
        """Returns the values of an expression.

        Raises:
            KeyError: something in it is not known.
        """
        if node not in self._known:
            if node.kind == "constant":
                self._known[node] = np.asarray(node.number, np.int64)
            elif node.kind in LEAVES:
                raise KeyError(node.kind)
            else:
                inner = [self.of(each) for each in node.inner]
                inside = self._ranges.exact(node)
                self._known[node] = compute(node.kind, inner, node.bits, inside)
        return self._known[node]

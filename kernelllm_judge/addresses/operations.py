"""Says what TTIR's operations do to integers, pointers and the places of elements in blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kernelllm_judge.addresses.expressions import Expressions, Node, conjuncts
from kernelllm_judge.addresses.ttir import Operation, element_of, shape_of

ARITHMETIC = {
    "addi": "add", "subi": "sub", "muli": "mul", "divsi": "div", "remsi": "rem", "minsi": "min", "maxsi": "max",
    "divui": "div", "remui": "rem", "minui": "min", "maxui": "max",
}  # fmt: skip
UNSIGNED = frozenset({"divui", "remui", "minui", "maxui"})
COMPARED = {"eq": "eq", "ne": "eq", "lt": "lt", "le": "le", "gt": "lt", "ge": "le"}
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}
SIZES = {"i1": 1, "i8": 1, "f8": 1, "i16": 2, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}
BY_ELEMENT = (
    "arith.",
    "math.",
    "tt.load",
    "tt.atomic",
    "tt.fp_to_fp",
    "tt.clampf",
    "tt.bitcast",
    "tt.precise",
    "tt.extern_elementwise",
)
"""Operations each element of which comes from the same element of what they take."""


@dataclass(frozen=True, eq=False)
class Pointer:
    """An address: elements from where an argument points."""

    base: int
    """Index of the argument; -1: not known."""
    offset: Node
    size: int
    """Bytes of an element."""
    either: tuple[Node, Pointer, Pointer] | None = None
    """Where it is one of two with other bases: whether it is the first."""

    def changed(self, change: Callable[[Node], Node]) -> Pointer:
        """Returns it with its offset changed, or those of both."""
        if self.either is None:
            return Pointer(self.base, change(self.offset), self.size)
        condition, first, second = self.either
        return Pointer(-1, self.offset, self.size, (condition, first.changed(change), second.changed(change)))

    def alternatives(self, make: Expressions) -> Iterator[tuple[tuple[Node, ...], Pointer]]:
        """Yields what it may be, each with what holds then."""
        if self.either is None:
            yield (), self
            return
        condition, *both = self.either
        for test, pointer in zip((condition, make.make("not", condition)), both, strict=True):
            for conditions, each in pointer.alternatives(make):
                yield (*conjuncts(test), *conditions), each


Value = Node | Pointer


@dataclass
class Operations:
    """Makes the values of operations."""

    make: Expressions

    def value(self, op: Operation, values: Sequence[Value | None]) -> Value:
        """Returns the value of an operation that does nothing to memory; None among ``values`` is not known."""
        dialect, _, name = op.name.partition(".")
        given = [value for value in values if value is not None]
        found = None
        if len(given) == len(values) and dialect in ("arith", "tt"):
            found = (self._arithmetic if dialect == "arith" else self._layout)(name, op, given)
        return found or self.unknown(op, given)

    def joined(self, condition: Node, values: Sequence[Value]) -> Value:
        """One of two values, depending on a condition; of more, one that is not known."""
        first, second = values[0], values[-1]
        if len(values) == 2 and isinstance(first, Pointer) and isinstance(second, Pointer):
            if (first.base, first.size) == (second.base, second.size) and first.base >= 0:
                return first.changed(lambda offset: self.make.make("if", condition, offset, second.offset))
            if first.size == second.size:
                parts = [condition, *map(self.node, values)]
                return Pointer(-1, self.make.unknown(parts), first.size, (condition, first, second))
        known = first is second or not any(isinstance(v, Pointer) or v.kind == "any" for v in values)
        if len(values) == 2 and known and isinstance(first, Node) and isinstance(second, Node):
            return self.make.make("if", condition, first, second, bits=max(first.bits, second.bits))
        if isinstance(first, Pointer):
            return Pointer(-1, self.make.unknown(), first.size)
        return self.make.unknown([condition, *map(self.node, values)], first.bits)

    def node(self, value: Value) -> Node:
        """Returns a number, or how far a pointer is from its base."""
        return value.offset if isinstance(value, Pointer) else value

    def unknown(self, op: Operation, values: Sequence[Value], result: str | None = None) -> Value:
        """A value that is not known, with what an element of it comes from."""
        element = element_of(result or op.result_type)
        if element.startswith("ptr "):
            return Pointer(-1, self.make.unknown(), SIZES.get(element[4:], 1))
        nodes = [self.node(value) for value in values]
        if not op.name.startswith(BY_ELEMENT):
            rank = max(len(shape_of(op.types.strip().lstrip("("))), len(shape_of(op.result_type)), 1)
            lanes = [self.make.leaf("lane", axis, bits=32) for axis in range(rank + 1)]
            all_of_it = {lane: self.make.leaf("every", axis) for axis, lane in enumerate(lanes)}
            kept: list[Node] = lanes
            if op.name == "tt.reduce":  # what is left of the block keeps its place
                axis = op.number("axis")
                all_of_it = {lanes[axis]: all_of_it[lanes[axis]]}
                all_of_it |= {lanes[i]: lanes[i - 1] for i in range(axis + 1, rank)}
                kept = []
            nodes = [*(self.make.replace(node, all_of_it) for node in nodes), *kept]
        return self.make.unknown(nodes, BITS.get(element, 64))

    def _arithmetic(self, name: str, op: Operation, values: list[Value]) -> Value | None:
        element = element_of(op.result_type)
        bits, make = BITS.get(element, 0), self.make.make
        if name == "constant":
            found = re.search(r"(?:dense<)?\b(true|false)\b|(?:dense<)?(-?\d+)>?(?= |$)", op.text)
            if not bits or not found:
                return None
            value = int(found[2]) if found[2] else int(found[1] == "true")
            return self.make.constant(value if bits > 1 else value & 1, bits)
        if name == "select" and len(values) == 3:
            return self.joined(self.node(values[0]), values[1:])
        nodes = [self.node(value) for value in values]
        if name == "cmpi":
            found = re.match(r"\s*(eq|ne|[su](?:lt|le|gt|ge)),", op.text)
            if found is None or any(node.kind == "any" and node.bits == 1 for node in nodes):
                return None
            predicate = found[1]
            if predicate[0] == "u" and any(self._negative(node) for node in nodes):
                return None
            compared = predicate.lstrip("su") if predicate not in ("eq", "ne") else predicate
            if compared in ("gt", "ge"):
                nodes.reverse()
            made = make(COMPARED[compared], *nodes)
            return make("not", made) if predicate == "ne" else made
        if not bits:
            return None
        if bits == 1 and name in ("andi", "ori"):
            return make(name[:-1], *nodes)
        if bits == 1 and name == "xori" and nodes[1].kind == "constant":
            return make("not", nodes[0]) if nodes[1].number else nodes[0]
        if bits == 1:
            return None
        constant = nodes[1].number if len(nodes) > 1 and nodes[1].kind == "constant" else None
        if name in ARITHMETIC:
            if name in UNSIGNED and any(self._negative(node) for node in nodes):
                return None
            return make(ARITHMETIC[name], *nodes, bits=bits)
        if name == "extsi" and nodes[0].bits != 1:
            return nodes[0]
        if name == "extui":
            source = BITS.get(element_of(op.types.split(" to ")[0]), 64)
            return (
                nodes[0]
                if source > 1 and not self._negative(nodes[0])
                else make("widen", nodes[0], bits=source)
            )
        if name in ("trunci", "index_cast"):
            return make("wrap", nodes[0], bits=bits) if name == "trunci" else nodes[0]
        if name == "shli" and constant is not None and 0 <= constant < 32:
            return make("mul", nodes[0], self.make.constant(1 << constant), bits=bits)
        if constant is not None and not self._negative(nodes[0]):
            if name in ("shrsi", "shrui") and 0 <= constant < 63:
                return make("div", nodes[0], self.make.constant(1 << constant), bits=bits)
            if name == "andi" and constant >= 0 and constant & (constant + 1) == 0:
                return make("rem", nodes[0], self.make.constant(constant + 1), bits=bits)
        return None

    def _negative(self, node: Node) -> bool:
        """Whether a value may be negative, by what it is made of."""
        if node.kind == "constant":
            return node.number < 0
        if node.kind in ("add", "mul", "div", "rem", "min", "max", "if"):
            return any(self._negative(each) for each in node.inner[node.kind == "if" :])
        return node.kind not in ("program", "programs", "lane", "loop", "widen")

    def _layout(self, name: str, op: Operation, values: list[Value]) -> Value | None:
        make, shape = self.make, shape_of(op.result_type)
        if name in ("get_program_id", "get_num_programs"):
            axis = "xyz".index(op.text.strip()[:1])
            return make.leaf("program" if name == "get_program_id" else "programs", axis, bits=32)
        if name == "make_range":
            start, end = op.number("start"), op.number("end")
            lane = make.leaf("lane", 0, bits=32) if end - start > 1 else make.constant(0)
            return make.make("add", lane, make.constant(start), bits=32)
        if name in ("splat", "unsplat"):
            return values[0]
        if name == "addptr":
            pointer, offset = values
            if isinstance(pointer, Pointer) and isinstance(offset, Node):
                return pointer.changed(lambda before: make.make("add", before, offset))
            return None
        if name == "bitcast":
            element, value = element_of(op.result_type), values[0]
            same = isinstance(value, Pointer) and SIZES.get(element.removeprefix("ptr "), 0) == value.size
            return (
                value
                if same or (isinstance(value, Node) and element in BITS and value.bits == BITS[element])
                else None
            )
        before = shape_of(op.types)
        lanes = [make.leaf("lane", axis, bits=32) for axis in range(max(len(before), len(shape)))]
        by: dict[Node, Node] = {}
        if name == "broadcast":
            by = {lanes[i]: make.constant(0) for i, size in enumerate(before) if size == 1}
        elif name == "expand_dims":
            axis = op.number("axis")
            by = {lanes[i]: lanes[i + 1] for i in range(axis, len(before))}
        elif name == "trans":
            order = op.numbers("order")
            by = {lanes[old]: lanes[new] for new, old in enumerate(order)}
        elif name == "reshape" and "allow_reorder" not in op.text:
            by = self._reshaped(before, shape, lanes)
        else:
            return None
        by = {old: new for old, new in by.items() if old is not new}
        value = values[0]
        if isinstance(value, Pointer):
            return value.changed(lambda before: make.replace(before, by))
        return make.replace(value, by)

    def _reshaped(self, before: Sequence[int], after: Sequence[int], lanes: list[Node]) -> dict[Node, Node]:
        make, flat, count = self.make, self.make.constant(0), 1
        for axis in reversed(range(len(after))):
            if after[axis] > 1:
                part = make.make("mul", lanes[axis], make.constant(count), bits=32)
                flat = make.make("add", part, flat, bits=32)
            count *= after[axis]
        by, count = {}, 1
        for axis in reversed(range(len(before))):
            part = make.make("div", flat, make.constant(count), bits=32)
            by[lanes[axis]] = make.make("rem", part, make.constant(before[axis]), bits=32)
            count *= before[axis]
        return by

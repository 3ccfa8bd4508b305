"""Follows a kernel's operations to the addresses of its loads, stores and atomics, as expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from kernelllm_judge.addresses.expressions import Expressions, Node, conjuncts
from kernelllm_judge.addresses.ttir import Block, Kernel, Operation, Unparsed, element_of, shape_of

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
CARRIED_BLOCKS = 64
"""Blocks of a kernel that jumps, at most."""


@dataclass(frozen=True, eq=False)
class Pointer:
    """An address: elements from where an argument points."""

    base: int
    """Index of the argument; -1: not known."""
    offset: Node
    size: int
    """Bytes of an element."""


Value = Node | Pointer


@dataclass(frozen=True, eq=False)
class Access:
    """One load, store or atomic operation, of all programs."""

    kind: str
    """``load``, ``store`` or ``atomic``."""
    pointer: Pointer
    path: tuple[Node, ...]
    """What holds where it is reached."""
    masks: tuple[Node, ...]
    """What holds for the elements that it takes."""
    shape: tuple[int, ...]
    """Of the block that it takes at once."""
    loops: tuple[tuple[Node, Node], ...]
    """The counts of the loops around it, each with how often that loop runs."""
    line: int
    value: Node | None = None
    """What is stored."""
    ordering: bool = False
    """Whether an atomic operation's result is used, so that programs may wait for each other."""

    @property
    def guards(self) -> tuple[Node, ...]:
        """All that holds."""
        return (*self.path, *self.masks)

    @property
    def exact(self) -> bool:
        """Whether all of it is known."""
        return self.pointer.base >= 0 and self.pointer.offset.known and all(g.known for g in self.guards)


@dataclass
class Walk:
    """Walks through a kernel once."""

    kernel: Kernel
    make: Expressions
    accesses: list[Access] = field(default_factory=list)
    loops: list[tuple[Node, Node]] = field(default_factory=list)
    recording: bool = True

    # ----------------------------------------------------------------- blocks

    def run(self) -> list[Access]:
        """Returns the accesses. Parameters are leaves of the kind ``parameter``, numbered.

        Raises:
            Unparsed: it has operations whose effect on memory is not known.
        """
        env: dict[str, Value] = {}
        for number, (name, written) in enumerate(self.kernel.parameters):
            element = element_of(written)
            if element.startswith("ptr "):
                env[name] = Pointer(number, self.make.constant(0), SIZES.get(element[4:], 1))
            else:
                known = element in BITS
                leaf = self.make.leaf("parameter", number, bits=BITS.get(element, 64))
                env[name] = leaf if known else self.make.unknown()
        blocks = self.kernel.blocks
        if len(blocks) > CARRIED_BLOCKS:
            raise Unparsed("it jumps too often")
        reached: dict[str, list[tuple[Node, list[Value]]]] = {
            blocks[0].name: [(self.make.constant(1, 1), [])]
        }
        done: set[str] = set()
        for block in blocks:
            edges = reached.get(block.name, [])
            done.add(block.name)
            if not edges:
                continue
            path = edges[0][0]
            for condition, _ in edges[1:]:
                path = self.make.make("or", path, condition)
            for position, name in enumerate(block.arguments):
                values = [given[position] for _, given in edges]
                env[name] = values[0] if len(edges) == 1 else self._joined(edges[0][0], values)
            last = self.block(block, env, tuple(conjuncts(path)))
            for number, (successor, given) in enumerate(last.successors if last else []):
                if successor in done:
                    raise Unparsed("it jumps back")
                condition = path
                if last is not None and last.name == "cf.cond_br":
                    test = self._node(env[last.operands[0]])
                    test = test if number == 0 else self.make.make("not", test)
                    condition = self.make.make("and", path, test)
                reached.setdefault(successor, []).append((condition, [env[name] for name in given]))
        return self.accesses

    def block(self, block: Block, env: dict[str, Value], path: tuple[Node, ...]) -> Operation | None:
        """Walks through a block; returns its last operation."""
        last = None
        for last in block.operations:
            self._operation(last, env, path)
        return last

    def _inner(
        self, blocks: list[Block], env: dict[str, Value], path: tuple[Node, ...]
    ) -> tuple[Operation | None, dict[str, Value]]:
        if len(blocks) != 1:
            raise Unparsed("it jumps inside a loop or a condition")
        scope = dict(env)
        return self.block(blocks[0], scope, path), scope

    def _joined(self, condition: Node, values: Sequence[Value]) -> Value:
        """One of two values, depending on a condition; of more, one that is not known."""
        first, second = values[0], values[-1]
        if len(values) == 2 and isinstance(first, Pointer) and isinstance(second, Pointer):
            same = (first.base, first.size) == (second.base, second.size)
            offset = self.make.make("if", condition, first.offset, second.offset)
            return Pointer(first.base if same else -1, offset, first.size)
        known = first is second or not any(isinstance(v, Pointer) or v.kind == "any" for v in values)
        if len(values) == 2 and known and isinstance(first, Node) and isinstance(second, Node):
            return self.make.make("if", condition, first, second, bits=max(first.bits, second.bits))
        if isinstance(first, Pointer):
            return Pointer(-1, self.make.unknown(), first.size)
        return self.make.unknown([condition, *map(self._node, values)], first.bits)

    def _node(self, value: Value) -> Node:
        return value.offset if isinstance(value, Pointer) else value

    # ------------------------------------------------------------- operations

    def _operation(self, op: Operation, env: dict[str, Value], path: tuple[Node, ...]) -> None:
        dialect, _, name = op.name.partition(".")
        values = [env.get(operand) for operand in op.operands]
        if op.name in ("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"):
            self._access(op, env, path)
        elif op.name == "scf.for":
            self._for(op, env, path)
        elif op.name == "scf.if":
            self._if(op, env, path)
        elif op.name == "scf.while":
            self._while(op, env, path)
        elif op.name.startswith(("tt.descriptor_", "ttng.", "tt.call")) or (
            name == "elementwise_inline_asm" and "pure = true" not in op.text
        ):
            raise Unparsed(f"what `{op.name}` does to memory is not known")
        elif op.results:
            found = None
            if all(value is not None for value in values):
                if dialect == "arith":
                    found = self._arithmetic(name, op, [v for v in values if v is not None])
                elif dialect == "tt":
                    found = self._layout(name, op, [v for v in values if v is not None])
            for result in op.results:
                env[result] = found or self._unknown(op, [v for v in values if v is not None])

    def _unknown(self, op: Operation, values: Sequence[Value], result: str | None = None) -> Value:
        """A value that is not known, with what an element of it comes from."""
        element = element_of(result or op.result_type)
        if element.startswith("ptr "):
            return Pointer(-1, self.make.unknown(), SIZES.get(element[4:], 1))
        nodes = [self._node(value) for value in values]
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
            return self._joined(self._node(values[0]), values[1:])
        nodes = [self._node(value) for value in values]
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
                return Pointer(pointer.base, make.make("add", pointer.offset, offset), pointer.size)
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
            return Pointer(value.base, make.replace(value.offset, by), value.size)
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

    def _access(self, op: Operation, env: dict[str, Value], path: tuple[Node, ...]) -> None:
        kind = op.name.removeprefix("tt.").split("_")[0]
        operands = [env.get(name) for name in op.operands]
        values = [value if value is not None else self.make.unknown() for value in operands]
        at = {"load": 1, "store": 2}.get(kind, 2 if op.name == "tt.atomic_rmw" else 9)
        mask = self._node(values[at]) if len(values) > at else self.make.constant(1, 1)
        pointer = values[0]
        if not isinstance(pointer, Pointer):
            pointer = Pointer(-1, self.make.unknown(), 1)
        for result in op.results:
            env[result] = self._unknown(
                op, [pointer, mask, *values[1:]], op.result_type.replace("!tt.ptr<", "")
            )
        if self.recording:
            masks = tuple(conjuncts(mask))
            value = self._node(values[1]) if kind == "store" else None
            used = kind == "atomic" and any(self._uses(op.results[0], block) for block in self.kernel.blocks)
            shape = shape_of(op.types.strip().lstrip("("))
            access = Access(
                kind, pointer, path, masks, shape, tuple(self.loops), self.kernel.line(op.place), value, used
            )
            self.accesses.append(access)

    def _uses(self, name: str, block: Block) -> bool:
        return any(
            name in op.operands or any(self._uses(name, inner) for region in op.regions for inner in region)
            for op in block.operations
        )

    # ---------------------------------------------------- loops and conditions

    def _if(self, op: Operation, env: dict[str, Value], path: tuple[Node, ...]) -> None:
        condition = self._node(env[op.operands[0]])
        other = self.make.make("not", condition)
        found: list[list[Value]] = []
        for blocks, test in zip_longest(op.regions, (condition, other)):
            if blocks and not (test.kind == "constant" and not test.number):
                last, scope = self._inner(blocks, env, (*path, *conjuncts(test)))
                found.append([scope[name] for name in _yielded(last)])
            else:
                found.append([])
        for number, result in enumerate(op.results):
            values = [each[number] for each in found if len(each) > number]
            env[result] = values[0] if len(values) == 1 else self._joined(condition, values)

    def _while(self, op: Operation, env: dict[str, Value], path: tuple[Node, ...]) -> None:
        names, start = op.operands[::2], op.operands[1::2]
        carried = {name: self._forgotten(env[first]) for name, first in zip(names, start, strict=True)}
        last, scope = self._inner(op.regions[0], {**env, **carried}, (*path, self.make.unknown(bits=1)))
        given = [scope[name] for name in last.operands[1:]] if last else []
        arguments = op.regions[1][0].arguments
        self._inner(
            op.regions[1],
            {**env, **dict(zip(arguments, given, strict=True))},
            (*path, self.make.unknown(bits=1)),
        )
        for result, value in zip(op.results, given, strict=True):
            env[result] = self._forgotten(value)

    def _forgotten(self, value: Value) -> Value:
        if isinstance(value, Pointer):
            return Pointer(-1, self.make.unknown(), value.size)
        return self.make.unknown([value], value.bits)

    def _for(self, op: Operation, env: dict[str, Value], path: tuple[Node, ...]) -> None:
        make = self.make
        counter, *bounds = op.operands[:4]
        low, high, step = (self._node(env[name]) for name in bounds)
        names, start = op.operands[4::2], [env[name] for name in op.operands[5::2]]
        make.fresh += 1
        before = make.fresh
        count = make.leaf("loop", before)
        inside = {counter: make.make("add", low, make.make("mul", count, step))}
        reached = (*path, make.make("lt", inside[counter], high))
        # Once to see what changes from one time to the next, then with what that comes to.
        leaves = [
            Pointer(each.base, make.leaf("carried", before * 64 + i), each.size)
            if isinstance(each, Pointer)
            else make.leaf("carried", before * 64 + i, bits=each.bits)
            for i, each in enumerate(start)
        ]
        recording, self.recording = self.recording, False
        last, scope = self._inner(
            op.regions[0], {**env, **inside, **dict(zip(names, leaves, strict=True))}, reached
        )
        self.recording = recording
        given = [scope[name] for name in _yielded(last)]
        steps = [
            self._step(leaf, value, before, [count, *map(self._node, leaves)])
            for leaf, value in zip(leaves, given, strict=True)
        ]
        times = make.make(
            "div",
            make.make("sub", make.make("add", high, step), make.make("add", low, make.constant(1))),
            step,
        )
        times = make.make("max", times, make.constant(0))
        carried = [self._after(a, s, count, g) for a, s, g in zip(start, steps, given, strict=True)]
        self.loops.append((count, times))
        self._inner(op.regions[0], {**env, **inside, **dict(zip(names, carried, strict=True))}, reached)
        self.loops.pop()
        for result, a, s, g in zip(op.results, start, steps, given, strict=True):
            env[result] = self._after(a, s, times, g)

    def _step(self, leaf: Value, value: Value, before: int, changing: list[Node]) -> Node | None:
        """Returns what is added to a carried value each time; None where it is something else."""
        if isinstance(leaf, Pointer) and (
            not isinstance(value, Pointer) or value.base != leaf.base or leaf.base < 0
        ):
            return None
        carried, node = self._node(leaf), self._node(value)
        added = self.make.constant(0)
        while node is not carried:
            if node.kind != "add" or node.bits != carried.bits:
                return None
            inner = [each for each in node.inner if carried not in each.walk()]
            if len(inner) != 1:
                return None
            added = self.make.make("add", added, inner[0], bits=carried.bits)
            node = node.inner[1] if node.inner[0] is inner[0] else node.inner[0]
        for each in added.walk():
            if each in changing or (each.kind == "any" and each.number > before):
                return None
        return added

    def _after(self, start: Value, step: Node | None, times: Node, given: Value) -> Value:
        """Returns what a carried value is after so many times."""
        node = self._node(start)
        if step is None:
            if isinstance(start, Pointer):
                return Pointer(-1, self.make.unknown(), start.size)
            return self.make.unknown([start, self._node(given)], start.bits)
        bits = 64 if isinstance(start, Pointer) else node.bits
        moved = self.make.make("mul", times, step, bits=bits)
        after = self.make.make("add", node, moved, bits=bits)
        return Pointer(start.base, after, start.size) if isinstance(start, Pointer) else after


def _yielded(last: Operation | None) -> list[str]:
    """Returns the values that a region ends with."""
    return last.operands if last is not None and last.name == "scf.yield" else []

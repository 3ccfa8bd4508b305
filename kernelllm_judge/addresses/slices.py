"""Follows a kernel's operations to the addresses of its loads, stores and atomics, as expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from kernelllm_judge.addresses.expressions import Expressions, Node, conjuncts
from kernelllm_judge.addresses.operations import BITS, SIZES, Operations, Pointer, Value
from kernelllm_judge.addresses.ttir import Block, Kernel, Operation, Unparsed, element_of, shape_of

CARRIED_BLOCKS = 64
"""Blocks of a kernel that jumps, at most."""

NOWHERE = Node("constant")


@dataclass(frozen=True)
class Loop:
    """One loop around an access."""

    count: Node
    """How often it has run."""
    times: Node
    """How often it runs."""
    bounds: tuple[Node, ...]
    """Its counter's first value, its end, and the step."""


@dataclass(frozen=True, eq=False)
class Access:
    """One load, store or atomic operation, of all programs."""

    kind: str
    """``load``, ``store`` or ``atomic``."""
    base: int
    """Which argument its pointer comes from; -1: not known."""
    offset: Node
    """Elements from where that points."""
    size: int
    """Bytes of an element."""
    guards: tuple[Node, ...]
    """What holds for the elements that it takes."""
    shape: tuple[int, ...]
    """Of the block that it takes at once."""
    loops: tuple[Loop, ...]
    """Those around it, the outer ones first."""
    line: int
    value: Node | None = None
    """What is stored."""
    ordering: bool = False
    """Whether an atomic operation's result is used, so that programs may wait for each other."""
    storage: int = -1
    """Of a launch: which of the call's it goes to; -1: not known."""
    start: Node = NOWHERE
    """Of a launch: bytes from the storage's first one to where the argument points."""
    bytes: Node = NOWHERE
    """Of the storage."""

    @property
    def exact(self) -> bool:
        """Whether all of it is known."""
        return self.storage >= 0 and self.offset.known and all(guard.known for guard in self.guards)

    def changed(self, change: Callable[[Node], Node]) -> Access:
        """Returns it with its expressions changed."""
        return replace(
            self,
            offset=change(self.offset),
            guards=tuple(made for guard in self.guards if not (made := change(guard)).value),
            loops=tuple(
                Loop(change(each.count), change(each.times), tuple(map(change, each.bounds)))
                for each in self.loops
            ),
            value=self.value and change(self.value),
        )


@dataclass
class Walk:
    """Walks through a kernel once."""

    kernel: Kernel
    make: Expressions
    accesses: list[Access] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    recording: bool = True
    ops: Operations = field(init=False)

    def __post_init__(self) -> None:
        """Prepares what makes values."""
        self.ops = Operations(self.make)

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
                env[name] = values[0] if len(edges) == 1 else self.ops.joined(edges[0][0], values)
            last = self.block(block, env, tuple(conjuncts(path)))
            for number, (successor, given) in enumerate(last.successors if last else []):
                if successor in done:
                    raise Unparsed("it jumps back")
                condition = path
                if last is not None and last.name == "cf.cond_br":
                    test = self.ops.node(env[last.operands[0]])
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

    # ------------------------------------------------------------- operations

    def _operation(self, op: Operation, env: dict[str, Value], path: tuple[Node, ...]) -> None:
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
            op.name == "tt.elementwise_inline_asm" and "pure = true" not in op.text
        ):
            raise Unparsed(f"what `{op.name}` does to memory is not known")
        else:
            for result in op.results:
                env[result] = self.ops.value(op, values)

    def _access(self, op: Operation, env: dict[str, Value], path: tuple[Node, ...]) -> None:
        kind = op.name.removeprefix("tt.").split("_")[0]
        operands = [env.get(name) for name in op.operands]
        values = [value if value is not None else self.make.unknown() for value in operands]
        at = {"load": 1, "store": 2}.get(kind, 2 if op.name == "tt.atomic_rmw" else 9)
        mask = self.ops.node(values[at]) if len(values) > at else self.make.constant(1, 1)
        pointer = values[0]
        if not isinstance(pointer, Pointer):
            pointer = Pointer(-1, self.make.unknown(), 1)
        for result in op.results:
            env[result] = self.ops.unknown(
                op, [pointer, mask, *values[1:]], op.result_type.replace("!tt.ptr<", "")
            )
        if self.recording:
            value = self.ops.node(values[1]) if kind == "store" else None
            used = kind == "atomic" and any(self._uses(op.results[0], block) for block in self.kernel.blocks)
            shape = shape_of(op.types.strip().lstrip("("))
            line, loops = self.kernel.line(op.place), tuple(self.loops)
            for conditions, each in pointer.alternatives(self.make):
                guards = (*path, *conditions, *conjuncts(mask))
                self.accesses.append(
                    Access(kind, each.base, each.offset, each.size, guards, shape, loops, line, value, used)
                )

    def _uses(self, name: str, block: Block) -> bool:
        return any(
            name in op.operands or any(self._uses(name, inner) for region in op.regions for inner in region)
            for op in block.operations
        )

    # ---------------------------------------------------- loops and conditions

    def _if(self, op: Operation, env: dict[str, Value], path: tuple[Node, ...]) -> None:
        condition = self.ops.node(env[op.operands[0]])
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
            env[result] = values[0] if len(values) == 1 else self.ops.joined(condition, values)

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

    def _forgotten(self, value: Value, *others: Value) -> Value:
        if isinstance(value, Pointer):
            return Pointer(-1, self.make.unknown(), value.size)
        return self.make.unknown([value, *map(self.ops.node, others)], value.bits)

    def _for(self, op: Operation, env: dict[str, Value], path: tuple[Node, ...]) -> None:
        make = self.make
        counter, *bounds = op.operands[:4]
        low, high, step = (self.ops.node(env[name]) for name in bounds)
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
            self._step(leaf, value, before, [count, *map(self.ops.node, leaves)])
            for leaf, value in zip(leaves, given, strict=True)
        ]
        span = make.make("sub", make.make("add", high, step), make.make("add", low, make.constant(1)))
        times = make.make("max", make.make("div", span, step), make.constant(0))
        carried = [self._after(a, s, count, g) for a, s, g in zip(start, steps, given, strict=True)]
        self.loops.append(Loop(count, times, (low, high, step)))
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
        carried, node = self.ops.node(leaf), self.ops.node(value)
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
        node = self.ops.node(start)
        if step is None:
            return self._forgotten(start, given)
        bits = 64 if isinstance(start, Pointer) else node.bits
        moved = self.make.make("mul", times, step, bits=bits)
        after = self.make.make("add", node, moved, bits=bits)
        return Pointer(start.base, after, start.size) if isinstance(start, Pointer) else after


def _yielded(last: Operation | None) -> list[str]:
    """Returns the values that a region ends with."""
    return last.operands if last is not None and last.name == "scf.yield" else []

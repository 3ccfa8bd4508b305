"""Works out what each call of a module takes, and what it would take with its operations fused."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kernelllm_judge.timing.roofline import NO_FLOPS, Roofline
from pytest_kernelllm.beside.ranking.operations import Operation
from pytest_kernelllm.beside.ranking.trace import Trace


@dataclass(frozen=True)
class Cost:
    """What one call takes, with everything inside it."""

    microseconds: float = 0.0
    """The device's time: measured, or predicted with each operation at the roofline."""
    fused: float = 0.0
    """µs with neighbouring light operations fused; heavy ones keep their time where arithmetic limits them."""
    roofline: float = 0.0
    """µs that the fused operations need at the roofline, heavy ones included."""
    operations: int = 0
    bytes: int = 0
    """Bytes moved by the operations, each alone."""
    fused_bytes: int = 0
    flops: int = 0

    @property
    def headroom(self) -> float:
        """µs that kernels inside this call could save."""
        return self.microseconds - self.fused

    def __add__(self, other: Cost) -> Cost:
        """Adds field by field."""
        return Cost(*map(operator.add, vars(self).values(), vars(other).values()))

    def __sub__(self, other: Cost) -> Cost:
        """Subtracts field by field."""
        return Cost(*map(operator.sub, vars(self).values(), vars(other).values()))


@dataclass(frozen=True)
class Costs:
    """The costs of a run."""

    whole: Cost
    calls: tuple[Cost, ...]
    """The cost of each call in the trace, with everything inside it."""
    own: tuple[Cost, ...]
    """Of each call, without the calls inside it: what fusing gains beyond fusing inside each of them."""


def costs(trace: Trace, roofline: Roofline) -> Costs:
    """Returns the costs of a run and of each call in it.

    A call's light operations are fused where no heavy one lies between them, and move what enters and leaves such a group once.
    That is never taken to be slower than fusing each part of the call for itself.
    """
    alone = _alone(trace, roofline)
    fusion = _Fusion(trace, roofline, alone)
    inner: defaultdict[int | None, list[int]] = defaultdict(list)
    for index, call in enumerate(trace.calls):
        inner[call.parent].append(index)
    known: dict[int, Cost] = {}

    def parts(start: int, end: int, children: Iterable[int]) -> Cost:
        """The sum of the calls inside, and of the operations outside them, each alone."""
        total = Cost()
        for child in children:
            call = trace.calls[child]
            total += sum(alone[start : call.start], Cost()) + known[child]
            start = call.end
        return total + sum(alone[start:end], Cost())

    def least(start: int, end: int, children: list[int]) -> Cost:
        separate, together = parts(start, end, children), fusion.cost(start, end)
        return together if together.fused < separate.fused else separate

    for index in reversed(range(len(trace.calls))):  # inner calls come after the one that makes them
        call = trace.calls[index]
        known[index] = least(call.start, call.end, inner[index])
    whole = least(0, len(trace.operations), inner[None])
    calls = tuple(known[index] for index in range(len(trace.calls)))
    own = (cost - sum((known[i] for i in inner[index]), Cost()) for index, cost in enumerate(calls))
    return Costs(whole, calls, tuple(own))


def _alone(trace: Trace, roofline: Roofline) -> list[Cost]:
    """The cost of each operation by itself."""
    found = []
    for index, operation in enumerate(trace.operations):
        least = roofline.microseconds(operation.bytes, operation.work, operation.dtype)
        now = trace.microseconds[index] if trace.microseconds else least
        fused = now if _keeps_its_time(operation, roofline) else min(now, least)
        found.append(Cost(now, fused, min(now, least), 1, operation.bytes, operation.bytes, operation.flops))
    return found


def _keeps_its_time(operation: Operation, roofline: Roofline) -> bool:
    """Whether a kernel is not expected to beat the library: where arithmetic limits it, or nothing is known about it."""
    moving = roofline.microseconds(operation.bytes, NO_FLOPS, operation.dtype)
    limited = roofline.microseconds(0, operation.work, operation.dtype) >= moving
    return operation.kind == "unknown" or (operation.kind == "heavy" and limited)


class _Fusion:
    """Fuses the light operations in parts of a run."""

    def __init__(self, trace: Trace, roofline: Roofline, alone: list[Cost]) -> None:
        self._trace, self._roofline, self._alone = trace, roofline, alone
        self._last_read: dict[int, int] = {}
        for index, operation in enumerate(trace.operations):
            self._last_read |= {region.storage: index for region in operation.reads}

    def cost(self, start: int, end: int) -> Cost:
        """Returns the cost of the operations from ``start`` to before ``end``."""
        groups = self._groups(start, end)
        moved = {group: _Moved() for group in groups.values() if group is not None}
        writer: dict[int, int | None] = {}
        for index in range(start, end):
            operation, group = self._trace.operations[index], groups[index]
            for region in operation.reads:
                source = writer.get(region.storage, -1)
                if group is not None and source != group:
                    moved[group].read[region.storage][region.where] = region.bytes
                if source is not None and source >= 0 and source != group:
                    moved[source].needed.add(region.storage)
            for region in operation.writes:
                writer[region.storage] = group
                if group is not None:
                    moved[group].written[region.storage][region.where] = region.bytes
        total = sum((self._alone[i] for i, group in groups.items() if group is None), Cost())
        for each in moved.values():
            each.needed |= {
                s for s in each.written if s in self._trace.kept or self._last_read.get(s, -1) >= end
            }
        members = [self._alone[i] for i, group in groups.items() if group is not None]
        now = sum(members, Cost())
        bytes_ = sum(each.bytes for each in moved.values())
        fused = sum(self._roofline.microseconds(each.bytes, NO_FLOPS, "float32") for each in moved.values())
        fused = min(fused, now.fused)
        return total + Cost(now.microseconds, fused, fused, len(members), now.bytes, bytes_, 0)

    def _groups(self, start: int, end: int) -> dict[int, int | None]:
        """The group of each operation: how many heavy ones lie before it on the longest way; None for those that stay alone."""
        level: defaultdict[int, int] = defaultdict(int)
        groups: dict[int, int | None] = {}
        for index in range(start, end):
            operation = self._trace.operations[index]
            here = max((level[region.storage] for region in operation.reads), default=0)
            groups[index] = here if operation.kind == "light" else None
            after = here if operation.kind == "light" else here + 1
            for region in operation.writes:
                level[region.storage] = max(level[region.storage], after)
        return groups


class _Moved:
    """What one group of fused operations reads from outside it, and writes."""

    def __init__(self) -> None:
        self.read: defaultdict[int, dict[object, int]] = defaultdict(dict)
        self.written: defaultdict[int, dict[object, int]] = defaultdict(dict)
        self.needed: set[int] = set()

    @property
    def bytes(self) -> int:
        """Bytes that enter the group, and those written that something else needs."""
        kept = [regions for storage, regions in self.written.items() if storage in self.needed]
        return sum(sum(regions.values()) for regions in (*self.read.values(), *kept))

"""Runs kernels in Triton's interpreter with every access checked, and keeps the first fault in words."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from kernelllm_judge.worker.batching import Apart
from kernelllm_judge.worker.sanitizer.races import Access, Order, find_race, read_first
from kernelllm_judge.worker.sanitizer.regions import Allocations, Region, Regions

ACQUIRING = (ir.MEM_SEMANTIC.ACQUIRE, ir.MEM_SEMANTIC.ACQUIRE_RELEASE)
RELEASING = (ir.MEM_SEMANTIC.RELEASE, ir.MEM_SEMANTIC.ACQUIRE_RELEASE)
KEEPING = (ir.ATOMIC_OP.ADD, ir.ATOMIC_OP.FADD, ir.ATOMIC_OP.OR, ir.ATOMIC_OP.XOR)
"""With 0 these change nothing, nor does AND with all bits."""


class Sanitizer:
    """Checks the launches of one call. The first fault is kept; accesses out of bounds are left out."""

    def __init__(self, block: torch.Tensor, named: Mapping[str, torch.Tensor], file: str) -> None:
        """``block`` and ``named`` are as for ``Regions``; ``file`` is the path of the candidate's source."""
        self.fault: str | None = None
        self._regions = Regions(block, named)
        self._allocations = Allocations(self._regions)
        self._file = file
        self._kernel = ""
        self._arguments: dict[Region, str] = {}
        self._log: list[Access] = []
        self._order: Order | None = None
        """The order of programs; None before the first access that waits for others."""
        self._before: dict[tuple[int, int], np.generic] = {}
        """What was there before a release, by its number in the log and the bytes from the region's start."""
        self._early: np.generic | None = None
        """What the last access gets, if that is not the last value."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """A context in which launches are checked."""
        builder = InterpreterBuilder
        kinds = ("masked_load", "masked_store", "atomic_rmw", "atomic_cas", "ptr_to_int")
        names = [f"create_{kind}" for kind in kinds]
        before = {name: getattr(builder, name) for name in names}
        convert, launch = interpreter._implicit_cvt, interpreter.GridExecutor.__call__

        def pointer(argument: Any) -> Any:
            if not hasattr(argument, "data_ptr"):
                return convert(argument)
            real = convert(argument)
            region = self._regions.of(argument)
            virtual = region.base + argument.data_ptr() - region.start
            return tl.tensor(TensorHandle(np.array([virtual], np.uint64), real.dtype), real.dtype)

        def load(builder: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
            volatile = options.get("is_volatile", rest[-1] if rest else False)
            ordering = {"atomic": bool(volatile)}
            real, valid = self._check(pointers, mask, _itemsize(pointers), reads=True, ordering=ordering)
            return before["create_masked_load"](builder, real, valid, other, *rest, **options)

        def store(builder: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
            size = value.data.dtype.itemsize
            real, valid = self._check(pointers, mask, size, writes=True, values=value.data)
            return before["create_masked_store"](builder, real, value, valid, *rest)

        def update(
            builder: Any, kind: Any, pointers: Any, value: Any, mask: Any, order: Any, scope: Any
        ) -> Any:
            reads = kind != ir.ATOMIC_OP.XCHG
            size, number = value.data.dtype.itemsize, len(self._log)
            kept = ~value.data if kind == ir.ATOMIC_OP.AND else value.data
            keeps = kind in (*KEEPING, ir.ATOMIC_OP.AND) and kept.size == 1 and not kept.any()
            if keeps:
                self._stop_waiting()
            ordering = {**_ordering(order, scope), "keeps": keeps}
            real, valid = self._check(pointers, mask, size, reads, True, ordering=ordering)
            result = before["create_atomic_rmw"](builder, kind, real, value, valid, order, scope)
            return result if builder.undo else self._seen(result, number, np.asarray(valid.data, bool))

        def swap(builder: Any, pointers: Any, expected: Any, value: Any, order: Any, scope: Any) -> Any:
            self._stop_waiting()
            number = len(self._log)
            every = TensorHandle(np.ones_like(pointers.data, bool), tl.int1)
            size = value.data.dtype.itemsize
            keeps = value.data.size == 1 and bool((value.data == expected.data).all())
            ordering = {**_ordering(order, scope), "keeps": keeps}
            real, valid = self._check(pointers, every, size, True, True, ordering=ordering)
            if not valid.data.all():
                return TensorHandle(np.zeros_like(expected.data), expected.dtype.scalar)
            result = before["create_atomic_cas"](builder, real, expected, value, order, scope)
            return self._seen(result, number, np.asarray(valid.data, bool))

        def to_integer(builder: Any, pointers: Any, *rest: Any) -> Any:
            self._report(f"`{self._kernel}` makes an integer of an address, on which no result may depend")
            return before["create_ptr_to_int"](builder, pointers, *rest)

        def checked(executor: Any, *args: Any, **kwargs: Any) -> Any:
            self._start(executor, args, kwargs)
            with self._allocations.paused():
                result = launch(executor, *args, **kwargs)
            if not executor.at_once:  # programs that race do not run at once
                self._find_race()
            return result

        for name, patch in zip(names, (load, store, update, swap, to_integer), strict=True):
            setattr(builder, name, patch)
        interpreter._implicit_cvt, interpreter.GridExecutor.__call__ = pointer, checked
        try:
            with self._allocations:
                yield
        finally:
            for name, patch in before.items():
                setattr(builder, name, patch)
            interpreter._implicit_cvt, interpreter.GridExecutor.__call__ = convert, launch

    def copies(self, arguments: Iterable[Any]) -> dict[Region, np.ndarray]:
        """Returns copies of the memory of all tensors among a kernel's arguments."""
        regions = {self._regions.of(tensor) for tensor in _tensors(arguments)}
        return {region: region.copy() for region in regions}

    def require_unchanged(
        self, before: Mapping[Region, np.ndarray], after: Mapping[Region, np.ndarray]
    ) -> None:
        """Keeps a fault if the last launch reads what tuning runs, between the two copies, have changed."""
        for region, held in before.items():
            if region not in after:
                continue
            changed = np.flatnonzero((held != after[region]) & read_first(self._log, region))
            if changed.size:
                access = next(a for a in self._log if a.region is region and changed[0] in a.units(1))
                self._report(
                    f"line {access.line} of the autotuned kernel `{self._kernel}` reads {self._name(region)}, which "
                    "it has changed before while Triton tuned it; name it in `reset_to_zero` or `restore_value`"
                )

    def _start(self, executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._kernel, self._log, self._arguments = executor.fn.__name__, [], {}
        self._order, self._before = None, {}
        for name, value in {**dict(zip(executor.arg_names, args, strict=False)), **kwargs}.items():
            for tensor in _tensors([value]):
                self._arguments.setdefault(self._regions.of(tensor), name)

    def _check(
        self,
        pointers: Any,
        mask: Any,
        size: int,
        reads: bool = False,
        writes: bool = False,
        values: np.ndarray | None = None,
        ordering: Mapping[str, bool] | None = None,
    ) -> tuple[Any, Any]:
        """Checks one access. Returns real pointers, and a mask without the elements that are out of bounds."""
        # A mask may be an array, and its booleans may be stored as integers.
        requested = np.asarray(mask.data if isinstance(mask, TensorHandle) else mask, bool)
        given = [pointers.data, requested] if values is None else [pointers.data, requested, values]
        addresses, requested, *others = np.broadcast_arrays(*given)
        some = not requested.all()
        chosen = addresses[requested] if some else addresses.ravel()
        if not chosen.size:
            return pointers, TensorHandle(requested, tl.int1)
        values = next((each[requested] if some else each.ravel() for each in others), None)
        lowest, highest = int(chosen.min()), int(chosen.max())
        access = {"size": size, "reads": reads, "writes": writes, **(ordering or {})}
        region = self._regions.only(lowest, highest)
        if region and region.base <= lowest and highest + size <= region.base + region.size:
            self._note(region, (chosen - np.uint64(region.base)).view(np.int64), values, access)
            shift = (region.start - region.base) % (1 << 64)
            real = addresses + np.uint64(shift)
            return TensorHandle(real, pointers.dtype), TensorHandle(requested, tl.int1)
        real, valid = np.zeros_like(chosen), np.zeros(chosen.shape, bool)
        for region, members in self._regions.at(chosen):
            real[members], valid[members] = self._check_part(region, chosen[members], size, access)
            if region is not None:
                inside = members & valid
                part = None if values is None else values[inside]
                if inside.any():
                    self._note(region, (real[inside] - np.uint64(region.start)).view(np.int64), part, access)
        all_real, all_valid = np.zeros_like(addresses), np.zeros(addresses.shape, bool)
        all_real[requested], all_valid[requested] = real, valid
        return TensorHandle(all_real, pointers.dtype), TensorHandle(all_valid, tl.int1)

    def _check_part(
        self, region: Region | None, addresses: np.ndarray, size: int, access: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the real addresses of elements of one region, and which of them lie inside it."""
        verb = "writes" if access["writes"] else "reads"
        where = f"line {self._line()} of `{self._kernel}`"
        if region is None:
            self._report(f"{where} {verb} at an address that lies in no tensor, in {_program()}")
            return addresses, np.zeros(addresses.shape, bool)
        start = region.start if int(addresses[0]) < 1 << 47 else region.base
        offsets = (addresses - np.uint64(start)).view(np.int64)
        inside = (offsets >= 0) & (offsets + size <= region.size)
        if not inside.all():
            self._report(
                f"{where} {verb} element {int(offsets[~inside][0]) // size} of {self._name(region)}, which has "
                f"{region.size // size} elements, in {_program()}"
            )
        return (offsets + region.start).view(np.uint64), inside

    def _note(
        self, region: Region, offsets: np.ndarray, values: np.ndarray | None, access: Mapping[str, Any]
    ) -> None:
        """Logs an access inside its region, and checks that what it reads has been written."""
        size = access["size"]
        far = int(offsets[-1] - offsets[0]) == (len(offsets) - 1) * size
        packed = far and bool((offsets[1:] - offsets[:-1] == size).all())
        builder = interpreter.interpreter_builder
        undo, program, line = builder.undo, int(builder.programs[0]), self._line()
        entry = Access(region, offsets, program=program, line=line, values=values, packed=packed, **access)
        self._early = self._value_before(entry) if entry.keeps and entry.acquires and not undo else None
        if self._early is not None:
            entry = replace(entry, early=True)
        self._log.append(entry)
        if undo:
            undo.callback(self._log.pop)
        if self._order is not None:
            self._order.add(entry)
        if values is not None and not packed:
            self._check_duplicates(entry)
        if region.written is None:
            return
        places = entry.places(1)
        if entry.reads and not region.written[places].all():
            [first] = np.flatnonzero(~region.written[entry.units(1)])[:1]
            self._report(
                f"line {line} of `{self._kernel}` reads element {int(offsets[first // size]) // size} of "
                f"{self._name(region)}, which nothing has written, in {_program()}"
            )
        if entry.writes:
            if undo:
                undo.callback(region.written.__setitem__, places, region.written[places].copy())
            region.written[places] = True

    def _value_before(self, entry: Access) -> np.generic | None:
        """Returns the value from before the last release at an access's place, if the access may come so early."""
        self._order = self._order or Order(self._log)
        last = self._order.looked_past(entry)
        value = None if last is None else self._before.get((last.number, int(entry.offsets[0])))
        return value if value is not None and value.dtype.itemsize == entry.size else None

    def _seen(self, result: Any, number: int, chosen: Any) -> Any:
        """Returns what an atomic operation gets, where ``result`` is what it gets if it comes last.

        Args:
            result: the values from before the operation.
            number: of its first access in the log.
            chosen: which elements it takes.
        """
        if len(self._log) != number + 1:  # of several tensors, or of none
            return result
        entry, values = self._log[number], np.asarray(result.data)
        if entry.early:
            return TensorHandle(np.full_like(values, self._early), result.dtype)
        if entry.releases and not entry.keeps:
            offsets = map(int, entry.offsets)
            self._before |= {
                (number, at): value for at, value in zip(offsets, values[chosen].ravel(), strict=True)
            }
        return result

    def _stop_waiting(self) -> None:
        """Ends a kernel that waits for others once there is a fault: what it waits for may never come."""
        if self.fault is not None:
            raise RuntimeError(self.fault)

    def _check_duplicates(self, entry: Access) -> None:
        """Keeps a fault if one store writes different values to one element."""
        order = np.argsort(entry.offsets, kind="stable")
        offsets = entry.offsets[order]
        values = entry.stored.reshape(-1, entry.size)[order]
        clash = (offsets[1:] == offsets[:-1]) & (values[1:] != values[:-1]).any(1)
        if clash.any():
            element = int(offsets[1:][clash][0]) // entry.size
            self._report(
                f"line {entry.line} of `{self._kernel}` stores different values to element {element} of "
                f"{self._name(entry.region)} at once, in {_program()}"
            )

    def _find_race(self) -> None:
        race = find_race(self._log, self._order) if self.fault is None else None
        if race is None:
            return
        first, second = race.first, race.second
        self._report(
            f"programs of `{self._kernel}` race for element {race.offset // second.size} of "
            f"{self._name(second.region)}: {_program(first.program)} {_verb(first)} it in line {first.line}, "
            f"{_program(second.program)} {_verb(second)} it in line {second.line}"
        )

    def _name(self, region: Region) -> str:
        argument = self._arguments.get(region)
        return f"`{argument}` ({region.what})" if argument else region.what

    def _line(self) -> int:
        """Returns the line of the candidate's source that is being interpreted."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self._file:
                return int(frame.f_lineno)
            frame = frame.f_back
        return 0

    def _report(self, fault: str) -> None:
        if interpreter.interpreter_builder.undo:
            raise Apart  # so that the program is named that comes first
        self.fault = self.fault or fault


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    """Yields the tensors among a kernel's arguments, also inside tuples and tensor descriptors."""
    for value in values:
        if isinstance(value, tuple):
            yield from _tensors(value)
        elif hasattr(value, "data_ptr"):
            yield value
        elif hasattr(value, "block_shape") and hasattr(value, "base"):
            yield value.base


def _ordering(order: Any, scope: Any) -> dict[str, bool]:
    """Returns what an atomic operation orders; between programs, those of scope ``cta`` are plain."""
    atomic = scope != ir.MEM_SYNC_SCOPE.CTA
    return {
        "atomic": atomic,
        "acquires": atomic and order in ACQUIRING,
        "releases": atomic and order in RELEASING,
    }


def _itemsize(pointers: Any) -> int:
    return max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)


def _program(number: int | None = None) -> str:
    builder = interpreter.interpreter_builder
    number = int(builder.programs[0]) if number is None else number
    _, ys, zs = builder.grid_dim
    return f"program {(number // (ys * zs), number // zs % ys, number % zs)}"


def _verb(access: Access) -> str:
    if access.atomic:
        return "updates" if access.writes else "reads"
    return "writes" if access.writes else "reads"

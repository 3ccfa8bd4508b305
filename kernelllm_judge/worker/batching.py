"""Runs many programs of a launch at once in Triton's interpreter, whose time goes into operations, not into their elements.

The array of every value has an axis of programs in front: ``(programs, *shape)``, or ``(1, *shape)`` where all of them have the
same. Types and shapes that a kernel sees stay those of one program, and so do results, bit by bit. Programs that cannot run at
once are found out meanwhile: what they did is put back, and they run one after the other, or in parts.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton._C.libtriton import interpreter as memory
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, interpreter_builder

from kernelllm_judge.worker import tiles
from kernelllm_judge.worker.touched import Touched

MOST = 1 << 19
"""Elements of a value of all programs that run at once: what lies between operations takes some MiB then."""


class Apart(BaseException):
    """Programs cannot run at once. No ``Exception``, as Triton replaces those that pass through a kernel's functions."""

    def __init__(self, outcomes: Any = None, parts: int = 0) -> None:
        """Programs with the same of ``outcomes``, or so many parts of all, may run at once; by default none do."""
        super().__init__("programs cannot run at once")
        self.outcomes, self.parts = outcomes, parts

    def groups(self, programs: np.ndarray) -> list[np.ndarray]:
        """Returns which programs may run at once."""
        if self.parts:
            return np.array_split(programs, min(self.parts, len(programs)))
        if self.outcomes is None or len(self.outcomes) != len(programs):
            raise self
        found, which = np.unique(self.outcomes, return_inverse=True)
        if 2 * len(found) > len(programs):
            raise self
        return sorted((programs[which == each] for each in range(len(found))), key=lambda some: some[0])


class Unused(TensorHandle):  # type: ignore[misc]  # Triton has no types
    """What an atomic operation returns, which depends on the order of programs: they do not run at once if it is used."""

    def __init__(self, dtype: Any) -> None:
        """Like other values, but without data."""
        self.dtype = dtype
        self.attr: dict[str, Any] = {}

    @property
    def data(self) -> Any:
        """Raises ``Apart``."""
        raise Apart


def run_at_once() -> None:
    """Patches this process's interpreter, before the patches that compute what GPUs do. Not to be repeated."""
    builder = InterpreterBuilder
    builder.may_batch, builder.programs, builder.undo = True, np.zeros(1, np.int64), None
    """Whether programs may run at once, which they may not where their order is tried; the numbers of those that run, in the
    order in which Triton runs them; what puts back what they did, None where they run one after the other."""
    _give_programs_an_axis(builder)
    _access_memory(builder)
    _point_to_blocks(builder)
    interpreter.GridExecutor.__call__ = _launch
    interpreter.GridExecutor.at_once = False


def _give_programs_an_axis(builder: Any) -> None:
    def handle(function: Any) -> Any:
        return lambda self, arg, *rest: TensorHandle(function(arg.data, *rest), arg.dtype.scalar)

    def histogram(self: Any, data: Any, bins: int, mask: Any) -> Any:
        chosen = np.ones((1,), bool) if mask is None else np.asarray(mask.data, bool)
        values, chosen = np.broadcast_arrays(data.data, chosen)
        rows = (row[some] for row, some in zip(values, chosen, strict=True))
        counts = [np.histogram(row, bins=bins, range=(0, bins))[0] for row in rows]
        return TensorHandle(np.stack(counts).astype(np.int32), tl.int32)

    def show(self: Any, prefix: str, hexadecimal: bool, values: Any, signed: Any) -> None:
        _only_one()
        ones = (each.data if each.data.ndim == 1 else each.data[0] for each in values)
        own = [TensorHandle(data, each.dtype) for data, each in zip(ones, values, strict=True)]
        show_one(self, prefix, hexadecimal, own, signed)

    def gather(self: Any, source: Any, indices: Any, axis: int) -> Any:
        data, places = _alike(source.data, indices.data)
        return TensorHandle(np.take_along_axis(data, places, axis=axis + 1), source.dtype.scalar)

    show_one = builder.create_print
    builder.create_get_program_id = lambda self, axis: TensorHandle(_ids(self)[axis], tl.int32)
    builder.create_make_range = lambda self, _, start, stop: TensorHandle(
        np.arange(start, stop, dtype=np.int32)[None], tl.int32
    )
    builder.create_splat = lambda self, block, arg: TensorHandle(splat(arg, block.shape), arg.dtype.scalar)
    builder.create_unsplat = handle(lambda data: data.reshape(len(data)))
    builder.create_broadcast = handle(lambda data, shape: np.broadcast_to(data, _bounded(len(data), shape)))
    builder.create_reshape = handle(lambda data, shape, _: data.reshape(len(data), *shape))
    builder.create_trans = handle(lambda data, order: np.transpose(data, (0, *(axis + 1 for axis in order))))
    builder.create_expand_dims = handle(lambda data, axis: np.expand_dims(data, axis + 1))
    builder.create_cat = handle(lambda data, other: np.concatenate(_alike(data, other.data), axis=1))
    builder.create_join = handle(lambda data, other: np.stack(_alike(data, other.data), axis=-1))
    builder.create_histogram, builder.create_gather, builder.create_print = histogram, gather, show


def patch_tensors() -> None:
    """Patches conversions of values to Python's, after Triton's language has been patched."""
    tl.tensor.__index__ = lambda tensor: int(_same(tensor))
    # Triton itself asks blocks, whether there is a mask.
    tl.tensor.__bool__ = lambda tensor: _is_block(tensor) or bool(_same(tensor))
    tl.tensor.T = property(_transposed)


def splat(scalar: Any, shape: Sequence[int]) -> np.ndarray:
    """Returns the scalar of each program as a block."""
    full = np.empty(_bounded(len(scalar.data), shape), interpreter._get_np_dtype(scalar.dtype))
    full[...] = scalar.data.reshape(-1, *[1] * len(shape))
    return full


def _transposed(tensor: Any) -> Any:
    *rest, rows, columns = tensor.type.shape.values
    handle = TensorHandle(np.swapaxes(tensor.handle.data, -1, -2), tensor.handle.dtype)
    return tl.tensor(handle, tl.block_type(tensor.dtype, [*rest, columns, rows]))


def _is_block(tensor: Any) -> bool:
    data = tensor.handle.data
    return bool(data.size != len(data))


def _same(tensor: Any) -> Any:
    """Returns the one number that all programs have."""
    if _is_block(tensor):
        raise ValueError("a block is no index")
    values = tensor.handle.data.reshape(-1)
    if len(values) > 1 and (values != values[0]).any():
        raise Apart(values)
    return values[0]


def _bounded(programs: int, shape: Sequence[int]) -> tuple[int, ...]:
    own = math.prod(shape)
    if programs * own > MOST and programs > 1:
        raise Apart(parts=-(-programs * own // MOST))
    return programs, *shape


def _alike(*arrays: Any) -> list[np.ndarray]:
    """Returns arrays with as many programs each."""
    number = max(map(len, arrays))
    return [np.broadcast_to(each, (number, *each.shape[1:])) for each in arrays]


def _ids(builder: Any) -> list[np.ndarray]:
    if builder.undo is None:
        return [np.array([place], np.int32) for place in builder.grid_idx]
    ids = np.unravel_index(builder.programs, builder.grid_dim)
    return [each[: 1 if (each == each[0]).all() else None].astype(np.int32) for each in ids]


def _only_one() -> None:
    """Raises ``Apart`` where several programs run."""
    if interpreter_builder.undo is not None:
        raise Apart


def _access_memory(builder: Any) -> None:
    def load(
        self: Any,
        pointers: Any,
        mask: Any,
        other: Any,
        cache_modifier: Any = None,
        eviction_policy: Any = None,
        is_volatile: bool = False,
    ) -> Any:
        dtype = pointers.get_element_ty()
        kind = interpreter._get_np_dtype(dtype)
        if is_volatile:
            _only_one()
        rest = np.zeros((1,) * pointers.data.ndim, kind) if other is None else other.data
        addresses, chosen, rest = _whole(1, pointers.data, _array(mask), rest)
        if self.undo is not None:
            self.touched.note(addresses, chosen, kind.itemsize, self.programs)
        return TensorHandle(tiles.read(addresses, chosen, rest, kind), dtype)

    def store(self: Any, pointers: Any, value: Any, mask: Any, *_: Any) -> None:
        memory.store(*_written(self, pointers.data, value.data, _array(mask), atomic=False))

    def update(self: Any, kind: Any, pointers: Any, value: Any, mask: Any, order: Any, scope: Any) -> Any:
        addresses, data, chosen = _written(self, pointers.data, value.data, _array(mask), atomic=True)
        spread = (TensorHandle(addresses, pointers.dtype), TensorHandle(data, value.dtype))
        result = update_one(self, kind, *spread, TensorHandle(chosen, tl.int1), order, scope)
        return result if self.undo is None else Unused(result.dtype)

    def swap(self: Any, *arguments: Any) -> Any:
        _only_one()
        return swap_one(self, *arguments)

    update_one, swap_one = builder.create_atomic_rmw, builder.create_atomic_cas
    builder.create_masked_load, builder.create_masked_store = load, store
    builder.create_atomic_rmw, builder.create_atomic_cas = update, swap


def _array(mask: Any) -> np.ndarray:
    return np.asarray(mask.data if isinstance(mask, TensorHandle) else mask, bool)


def _whole(programs: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """Returns arrays of the same shape, for at least so many programs, as Triton's functions take them."""
    shape = np.broadcast_shapes((programs, *[1] * (arrays[0].ndim - 1)), *(each.shape for each in arrays))
    return [
        each
        if each.shape == shape and each.flags.carray
        else np.array(np.broadcast_to(each, shape), order="C")
        for each in arrays
    ]


def _written(
    builder: Any, addresses: Any, data: Any, chosen: Any, *, atomic: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns what is written, for each program, having noted how to put back what was there."""
    number = 1 if builder.undo is None else len(builder.programs)
    addresses, data, chosen = _whole(number, addresses, data, chosen)
    if builder.undo is not None:
        before = memory.load(addresses, chosen, np.zeros_like(data), data.dtype)
        builder.undo.callback(memory.store, addresses, before, chosen)
        builder.touched.note(addresses, chosen, data.itemsize, builder.programs, writes=True, atomic=atomic)
    return addresses, data, chosen


def _point_to_blocks(builder: Any) -> None:
    def pointers(base: Any, block: Any, offsets: Any, checked: Any) -> tuple[Any, np.ndarray]:
        rank, size = len(block.block_shape), max(1, base.get_element_ty().primitive_bitwidth // 8)
        column = [-1, *[1] * rank]
        addresses, inside = base.data.reshape(column), np.ones((1,), bool)
        for dim, length in enumerate(block.block_shape):
            places = np.arange(length).reshape([length if each == dim else 1 for each in range(-1, rank)])
            places = offsets[dim].data.reshape(column) + places
            strides = block.strides[dim].data.reshape(column)
            addresses = addresses + (size * places * strides).astype(np.uint64)
            if dim in checked:
                inside = inside & (places < block.shape[dim].data.reshape(column)) & (places >= 0)
        addresses, inside = np.broadcast_arrays(addresses, inside)
        return TensorHandle(addresses, base.dtype.scalar), inside

    def descriptor(block: Any, offsets: Any) -> tuple[Any, np.ndarray]:
        size = block.base.dtype.element_ty.primitive_bitwidth // 8
        assert not (offsets[-1].data * size % 16).any(), "block offset start must be 16-byte aligned"
        return pointers(block.base, block, offsets, range(block.ndim))

    def advance(self: Any, block: Any, steps: Any) -> Any:
        if len(block.offsets) != len(steps):
            raise ValueError("len(ptr.offsets) != len(offsets)")
        moved = [
            TensorHandle((offset.data + step.data).astype(offset.data.dtype), offset.dtype)
            for offset, step in zip(block.offsets, steps, strict=True)
        ]
        given = block.base, block.shape, block.strides, moved, block.block_shape, block.order
        return interpreter.BlockPointerHandle(*given)

    def collect(self: Any, block: Any, rows: Any, column: Any, _: Any) -> Any:
        found = [self.create_descriptor_load(block, [row, column], None, None).data for row in each_row(rows)]
        return TensorHandle(np.concatenate(_alike(*found), axis=1), block.base.dtype.element_ty)

    def scatter(self: Any, block: Any, value: Any, rows: Any, column: Any) -> None:
        for place, row in enumerate(each_row(rows)):
            part = TensorHandle(value.data[:, place : place + 1], value.dtype)
            self.create_descriptor_store(block, part, [row, column])

    def each_row(rows: Any) -> list[Any]:
        return [TensorHandle(rows.data[:, place], tl.int32) for place in range(rows.data.shape[1])]

    blocks = interpreter.BlockPointerHandle
    blocks.materialize_pointers = lambda self, checked: pointers(self.base, self, self.offsets, checked)
    interpreter.TensorDescHandle.materialize_pointers = descriptor
    builder.create_advance = advance
    builder.create_descriptor_gather, builder.create_descriptor_scatter = collect, scatter


def _launch(executor: Any, *args: Any, **kwargs: Any) -> None:
    """Replaces ``GridExecutor.__call__``; the parts that copy from and to a GPU are left out."""
    names = inspect.getfullargspec(executor.fn).args
    kwargs = {name: value for name, value in kwargs.items() if name in names}
    for hook in executor.pre_run_hooks:
        hook(*args, **kwargs)
    scope = interpreter._patch_lang(executor.fn)
    try:
        given = inspect.getcallargs(executor.fn, *args, **kwargs)
        values = {
            name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
            for name, value in given.items()
        }
        grid = executor.grid(values) if callable(executor.grid) else executor.grid
        assert len(grid) <= 3, "grid must have at most 3 dimensions"
        interpreter_builder.set_grid_dim(*grid, *[1] * (3 - len(grid)))
        executor.at_once = _run_at_once(executor.fn, values)
        try:
            places = np.ndindex(*interpreter_builder.grid_dim) if not executor.at_once else ()
            for number, place in enumerate(places):
                interpreter_builder.set_grid_idx(*place)
                interpreter_builder.programs = np.array([number])
                executor.fn(**values)
        except Exception as error:
            if triton.knobs.compilation.front_end_debugging:
                raise
            raise InterpreterError(repr(error)) from error
    finally:
        scope.restore()


def _run_at_once(kernel: Any, values: dict[str, Any]) -> bool:
    """Runs all programs of a launch at once, or in parts; returns False if it has put back what they did."""
    builder = interpreter_builder
    number = math.prod(map(int, builder.grid_dim))
    if number < 2 or not builder.may_batch:
        return False
    waiting, tries = [np.arange(number)], 0
    builder.touched = Touched()
    try:
        with ExitStack() as undo:
            while waiting:
                tries += 1
                builder.programs = waiting.pop()
                try:
                    with ExitStack() as builder.undo:
                        kernel(**values)
                        undo.push(builder.undo.pop_all())
                except Apart as apart:
                    waiting += reversed(apart.groups(builder.programs))
                    if 2 * tries > number and not apart.parts:
                        raise
            if builder.touched.by_several():
                raise Apart
            undo.pop_all()
    except (Apart, Exception):  # an exception comes again, in the program that raises it first
        return False
    finally:
        builder.undo = None
    return True

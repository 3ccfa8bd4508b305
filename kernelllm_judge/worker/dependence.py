"""Carries along, in Triton's interpreter, what each value depends on, and which of its elements count.

Elements that a mask left out of a load do not count, nor do those that ``tl.where`` takes from what nothing was loaded for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from kernelllm_judge.worker import intervals

NUMBERS, WHOLE, TRUTHS = 1, 2, 4
"""What a value depends on: loaded floats, loaded integers, loaded booleans…"""
PLACED, GIVEN = 8, 16
"""…program ids and ranges, scalar arguments…"""
DECIDED = 32
"""…and comparisons of integers such as labels and places, which often guard against what cannot be, or tests for NaN."""
_NOT_FINITE = ("isnan", "isinf", "finite")
"""Parts of names of libdevice's functions that test for NaN and infinities, which are asked by a rule of their own."""

LOADED = NUMBERS | WHOLE | TRUTHS

Note = Callable[..., tuple[int, Any]]
"""Called with a result, what it depends on, the elements that count, and the operands; returns the second and third anew."""
Patch = tuple[Any, str, Any]
"""An object, a name, and what the object has under it while values are followed."""

_SHAPES: dict[str, Callable[..., Any]] = {
    "expand_dims": lambda lanes, axis: np.expand_dims(lanes, axis + 1),
    "broadcast": lambda lanes, shape: np.broadcast_to(lanes, (len(lanes), *shape)),
    "reshape": lambda lanes, shape, *_: lanes.reshape(len(lanes), *shape),
    "trans": lambda lanes, order: np.transpose(lanes, (0, *(axis + 1 for axis in order))),
}
"""How the elements that count are moved with the values."""


def patches(note_of: Callable[[str], Note | None]) -> list[Patch]:
    """Returns what to patch; ``note_of`` returns what is called after an operation of the interpreter's builder, or ``reduce``."""
    TensorHandle.kinds, TensorHandle.lanes = 0, None
    TensorHandle.interval, TensorHandle.makers, TensorHandle.truths = None, frozenset(), False
    builder, semantic = InterpreterBuilder, type(interpreter.interpreter_semantic)
    reductions = interpreter.ReduceScanOpInterface
    names = [name for name in dir(builder) if name.startswith("create_")]
    return [
        *((builder, name, _operation(name[7:], getattr(builder, name), note_of)) for name in names),
        (semantic, "broadcast_impl_value", _broadcast(semantic.broadcast_impl_value)),
        (reductions, "apply", _reduced(reductions.apply, note_of("reduce"))),
        (reductions, "to_tensor", _inside(reductions.to_tensor)),
        (interpreter, "_implicit_cvt", _argument(interpreter._implicit_cvt)),
        (tl.tensor, "T", property(_transposed(tl.tensor.T.fget))),
    ]


def relevant(kinds: int) -> bool:
    """Whether what depends on these is recorded where it decides."""
    return bool(kinds & LOADED) or kinds & (PLACED | GIVEN) == GIVEN


def both(a: Any, b: Any) -> Any:
    """Returns the elements that count in two operands; None: all do."""
    if a is b or b is None:
        return a
    return b if a is None else (a & b if a.shape[1:] == b.shape[1:] else None)


def _operation(name: str, original: Any, note_of: Callable[[str], Note | None]) -> Any:
    if name in ("masked_load", "atomic_rmw", "atomic_cas"):
        return _loading(original, note_of(name), masked=name == "masked_load")
    if name in ("get_program_id", "make_range", "get_num_programs"):
        return _placing(original)
    note, shape, listed = note_of(name), _SHAPES.get(name), name == "extern_elementwise"

    def create(builder: Any, *arguments: Any, **named: Any) -> Any:
        result = original(builder, *arguments, **named)
        kinds, lanes = 0, None
        for each in arguments[3] if listed else arguments:
            if type(each) is TensorHandle and each.kinds:
                kinds |= each.kinds
                if each.lanes is not lanes:
                    lanes = both(lanes, each.lanes)
        if not kinds:
            return result
        if listed and any(part in arguments[2] for part in _NOT_FINITE):
            kinds |= DECIDED
        for each in result if type(result) is tuple else (result,):
            if type(each) is TensorHandle:
                each.interval = intervals.result(name, each, arguments, loaded=bool(kinds & LOADED))
        if note is not None:
            kinds, lanes = note(result, kinds, lanes, *arguments)
        if shape is not None and lanes is not None:
            lanes = shape(lanes, *arguments[1:])
        _mark(result, kinds, lanes)
        return result

    return create


def _mark(result: Any, kinds: int, lanes: Any) -> None:
    for handle in result if type(result) is tuple else (result,):
        if type(handle) is TensorHandle and kinds:
            handle.kinds |= kinds
            if lanes is not None and handle.data.shape[1:] == lanes.shape[1:]:
                handle.lanes = lanes


def _loading(original: Any, note: Note | None, *, masked: bool) -> Any:
    def load(builder: Any, *arguments: Any, **named: Any) -> Any:
        result = original(builder, *arguments, **named)
        mask, lanes, dtype = arguments[1], None, result.dtype.scalar
        if masked and mask is not None:
            lanes = np.asarray(mask.data if type(mask) is TensorHandle else mask, bool)
        kinds = NUMBERS if dtype.is_floating() else TRUTHS if dtype is tl.int1 else WHOLE
        if not masked and not kinds & NUMBERS:
            kinds = PLACED  # a lock or a ticket, which depends on the order of programs
        _mark(result, kinds, None if lanes is None or lanes.all() else lanes)
        if note is not None and not masked:
            note(result, 0, None, *arguments)  # what it adds to memory is used
        return result

    return load


def _placing(original: Any) -> Any:
    def place(builder: Any, *arguments: Any) -> Any:
        result = original(builder, *arguments)
        result.kinds = PLACED
        return result

    return place


def _broadcast(original: Any) -> Any:
    def broadcast(semantic: Any, left: Any, right: Any) -> Any:
        results = original(semantic, left, right)
        for before, after in zip((left, right), results, strict=True):
            if before is not after:
                after.handle.kinds |= before.handle.kinds
                after.handle.makers |= before.handle.makers
                after.handle.truths = before.handle.truths
        return results

    return broadcast


def _reduced(original: Any, note: Note | None) -> Any:
    def apply(reduction: Any, given: Any) -> Any:
        if not isinstance(given, tuple):
            return original(reduction, given)  # which calls this again
        reduction.kinds = 0
        for each in given:
            reduction.kinds |= each.handle.kinds
        results = original(reduction, given)
        for number, result in enumerate(results):
            if reduction.kinds:
                value = given[0].handle
                result.handle.interval = intervals.reduced(
                    reduction, result.handle, value, place=bool(number)
                )
                _mark(result.handle, reduction.kinds, value.lanes)
                if note is not None:
                    note(result.handle, reduction.kinds, value.lanes, *(each.handle for each in given))
        return results

    return apply


def _inside(original: Any) -> Any:
    def to_tensor(reduction: Any, *arguments: Any, **named: Any) -> Any:
        made = original(reduction, *arguments, **named)
        made.handle.kinds |= getattr(reduction, "kinds", 0)
        return made

    return to_tensor


def _transposed(original: Any) -> Any:
    def transpose(tensor: Any) -> Any:
        result, lanes = original(tensor), tensor.handle.lanes
        _mark(result.handle, tensor.handle.kinds, None if lanes is None else np.swapaxes(lanes, -1, -2))
        result.handle.makers = tensor.handle.makers
        return result

    return transpose


def _argument(original: Any) -> Any:
    def convert(argument: Any) -> Any:
        converted = original(argument)
        if isinstance(argument, int | float):
            converted.handle.kinds = GIVEN
            if type(argument) is int and argument >= 1:  # no size is 0
                converted.handle.interval = 1, 2 ** (converted.handle.data.itemsize * 8 - 1) - 1
        return converted

    return convert

"""Says of the operands of a decision which are bounds that nothing crosses, and which values a cast loses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from kernelllm_judge.worker.dependence import LOADED
from kernelllm_judge.worker.gpu_semantics import float32, narrow
from kernelllm_judge.worker.intervals import interval


def ordinary(values: np.ndarray, handle: Any) -> Any:
    """Returns which operands of an extreme are no starting value: neither infinite nor the dtype's own limit."""
    if values.dtype.kind != "f":
        limits = np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
        if limits is None or handle.kinds & LOADED:
            return np.ones(values.shape, bool)
        return (values != limits.min) & (values != limits.max)
    greatest = np.finfo(np.float16 if handle.dtype.scalar is tl.float16 else np.float32).max
    with np.errstate(invalid="ignore"):
        return np.abs(values) < (greatest if not handle.kinds & LOADED else np.inf)


def finite(x: np.ndarray, y: np.ndarray) -> Any:
    """Returns which elements of both operands are numbers."""
    return np.isfinite(x) & np.isfinite(y)


def is_end(handle: Any) -> bool:
    """Whether an operand is infinite everywhere, and not by what is loaded."""
    data = handle.data
    return (
        data.dtype.kind == "f"
        and not handle.kinds & LOADED
        and bool(np.isinf(data.flat[0]) and np.isinf(data).all())
    )


def may_lose(value: Any, target: Any) -> bool:
    """Whether a cast may lose something, by the types and by the bounds of the value."""
    source, (low, high) = value.dtype.scalar, interval(value)
    if value.data.dtype.kind == "b":
        return False
    if not target.is_floating():
        least = 0 if target.is_int_unsigned() else -(2 ** (target.primitive_bitwidth - 1))
        return target is not tl.int1 and not (least <= low and high < least + 2**target.primitive_bitwidth)
    if source.is_floating():
        return bool(target.primitive_bitwidth < source.primitive_bitwidth)
    return bool(max(-low, high) > 2 ** (target.fp_mantissa_width + 1))


def lost(source: Any, result: Any) -> tuple[Any, float]:
    """Returns which elements of a cast lost something, and the magnitude from which on some do."""
    values, target = float32(source).data, result.dtype.scalar
    with np.errstate(all="ignore"):
        if target.is_floating():
            if source.dtype.scalar.is_floating():
                return (float32(result).data != values) & ~np.isnan(values), math.inf
            limit = 2.0 ** (target.fp_mantissa_width + 1)
            return np.abs(values) > limit, limit
        bits = target.primitive_bitwidth
        low, high = (
            (0.0, 2.0**bits) if target.name.startswith("u") else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))
        )
        return (values < low) | (values >= high), high


FACTORS = (-0.5, 0.75, -0.25)
"""Several, so that what is divided by its own sum or norm comes out otherwise. All lie between -1 and 1: a term that is too
small to be seen stays so."""


def mutated(result: Any) -> np.ndarray:
    """Returns other values for an operation's result: a multiple of each, so that 0 stays 0."""
    if not result.dtype.scalar.is_floating():
        return np.asarray(np.negative(result.data))
    values = float32(result).data
    shape = values.shape[1:]  # of one program
    factors = np.resize(np.asarray(FACTORS, values.dtype), math.prod(shape)).reshape(shape)
    with np.errstate(all="ignore"):
        found = values * factors
    return np.asarray(narrow(found) if result.dtype.scalar == tl.bfloat16 else found)


def varying(operands: Any) -> Any:
    """Returns which of two operands of a sum depends on what is loaded, where the other is a constant that is not 0."""
    a, b = operands
    if bool(a.kinds & LOADED) == bool(b.kinds & LOADED):
        return None
    constant = b if a.kinds & LOADED else a
    return (a if constant is b else b) if np.any(constant.data) else None


def has_mutants(result: Any, kinds: int) -> bool:
    """Whether the result of an operation are numbers: floats, or integers of what is loaded."""
    if type(result) is not TensorHandle:
        return False
    dtype = result.dtype.scalar
    is_number = dtype.is_floating() or (dtype.is_int() and kinds & LOADED)
    return bool(is_number and not result.truths)


_OF_TRUTHS = frozenset({"and", "or", "xor", "int_cast", "reduce"})
"""Operations that give truth values of truth values, unless they are sums."""


def are_truths(name: str, result: Any, operands: Iterable[Any]) -> bool:
    """Whether the result of an operation are truth values, of which only decisions are made.

    They may have the type of what is compared, and be integers after a choice or a cast.
    """
    if type(result) is not TensorHandle:
        return False
    if _are_booleans(result):
        return True
    of_truths = name in _OF_TRUTHS and all(each.truths or _are_booleans(each) for each in operands)
    return of_truths and bool((result.data | 1 == 1).all())


def _are_booleans(value: Any) -> bool:
    return bool(value.data.dtype.kind == "b" or value.dtype.scalar is tl.int1)


def flattened(operands: Iterable[Any]) -> Iterator[Any]:
    """Yields operands, one by one also where an operation takes or gives several."""
    for each in operands:
        if isinstance(each, list | tuple):
            yield from flattened(each)
        else:
            yield each

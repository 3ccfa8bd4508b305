"""Patches Triton's interpreter to compute bfloat16 as a GPU does, and to run faster.

Triton 3.7's interpreter stores bfloat16 as raw bits, which it adds and multiplies as integers. It
truncates where a GPU rounds to nearest even, and has no bfloat16 constants. The patch computes in float32
and rounds the result, as Triton's compiled code does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, interpreter_builder

BITS = np.dtype(np.uint16)
"""In which the interpreter keeps bfloat16."""


def widen(bits: np.ndarray) -> np.ndarray:
    """Converts bfloat16 bits (uint16) to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: np.ndarray) -> np.ndarray:
    """Converts numbers to bfloat16 bits (uint16), rounding to nearest even; NaN stays NaN."""
    # Not `ascontiguousarray`, which makes a number an array.
    bits = np.asarray(values, np.float32, order="C").view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def fix_bfloat16() -> None:
    """Patches this process's interpreter to compute bfloat16 correctly."""
    cast, to_float = InterpreterBuilder.cast_impl, InterpreterBuilder.create_fp_to_fp
    binary, unary = InterpreterBuilder.binary_op, InterpreterBuilder.unary_op

    def convert(builder: Any, source: Any, target: Any, original: Any, *rest: Any) -> Any:
        if tl.bfloat16 not in (source.dtype.scalar, target.scalar):
            return original(builder, source, target, *rest)
        wide = _wide(source)
        if target.scalar == tl.bfloat16:
            return TensorHandle(narrow(wide.data.astype(np.float32)), tl.bfloat16)
        return wide if target.scalar == tl.float32 else cast(builder, wide, target)

    def compute(builder: Any, operands: tuple[Any, ...], op: Any, original: Any) -> Any:
        first = operands[0]
        if first.data.dtype != BITS or first.dtype.scalar != tl.bfloat16:
            return original(builder, *operands, op)
        result = original(builder, *map(_wide, operands), op)
        if result.data.dtype == np.float32:
            return TensorHandle(narrow(result.data), tl.bfloat16)
        return result  # a comparison

    InterpreterBuilder.cast_impl = lambda self, source, target: convert(self, source, target, cast)
    InterpreterBuilder.create_fp_to_fp = lambda self, source, target, rounding: convert(
        self, source, target, to_float, rounding
    )
    InterpreterBuilder.binary_op = lambda self, a, b, op: compute(self, (a, b), op, binary)
    InterpreterBuilder.unary_op = lambda self, a, op: compute(self, (a,), op, unary)
    InterpreterBuilder.get_bf16 = lambda self, value: TensorHandle(narrow(np.array([value])), tl.bfloat16)


def speed_up() -> None:
    """Patches this process's interpreter to skip slow work that does not change results.

    Half of its time goes into overflow checks after every integer operation, and much of the rest into
    copying arguments from and to a GPU.
    """
    interpreter_builder.options = replace(interpreter_builder.options, sanitize_overflow=False)
    executor = interpreter.GridExecutor
    executor._init_args_hst = lambda self, args, kwargs: (list(args), dict(kwargs))
    executor._restore_args_dev = lambda self, *args: None


def _wide(handle: Any) -> Any:
    return TensorHandle(widen(handle.data), tl.float32) if handle.dtype.scalar == tl.bfloat16 else handle


@contextlib.contextmanager
def last_program_first() -> Iterator[None]:
    """A context in which the programs of a grid run in reverse order; a GPU guarantees no order."""
    forward = InterpreterBuilder.set_grid_idx

    def backward(builder: Any, *index: int) -> None:
        forward(builder, *(size - 1 - i for size, i in zip(builder.grid_dim, index, strict=True)))

    InterpreterBuilder.set_grid_idx = backward
    try:
        yield
    finally:
        InterpreterBuilder.set_grid_idx = forward

"""Patches Triton's interpreter to compute what a GPU computes, where the two differ.

- bfloat16 is rounded to nearest even. Triton 3.7's interpreter stores it as raw bits, which it adds and multiplies as
  integers, truncates, and has no constants. The patch computes in float32 and rounds the result, as compiled code does.
- ``tl.maximum``, ``tl.minimum`` and ``tl.clamp`` drop NaN unless the kernel asks to propagate it.
- Floats of 8 bits are converted as there, see ``eight_bits``.
- Reductions combine and round as there, see ``reductions``.
- ``tl.dot`` of float32 rounds its operands to TF32 unless the kernel asks for another precision, and computes the products of
  their parts for ``tf32x3``, ``bf16x3`` and ``bf16x6``.
- Floats and booleans among a kernel's arguments are tensors; floats are rounded to float32.
- Integers wrap as constants.
- Grids are bounded.
- What ``tl.multiple_of`` states is so: a compiler relies on it, and the interpreter does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from kernelllm_judge.worker import eight_bits
from kernelllm_judge.worker.reductions import compute_reductions

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
        wide = float32(source)
        if target.scalar == tl.bfloat16:
            return TensorHandle(narrow(wide.data.astype(np.float32)), tl.bfloat16)
        return wide if target.scalar == tl.float32 else cast(builder, wide, target)

    def compute(builder: Any, operands: tuple[Any, ...], op: Any, original: Any) -> Any:
        first = operands[0]
        if first.data.dtype != BITS or first.dtype.scalar != tl.bfloat16:
            return original(builder, *operands, op)
        result = original(builder, *map(float32, operands), op)
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


@contextlib.contextmanager
def last_program_first() -> Iterator[None]:
    """A context in which the programs of a grid run in reverse order; a GPU guarantees no order."""
    forward = InterpreterBuilder.set_grid_idx

    def backward(builder: Any, *index: int) -> None:
        forward(builder, *(size - 1 - i for size, i in zip(builder.grid_dim, index, strict=True)))

    InterpreterBuilder.set_grid_idx, InterpreterBuilder.may_batch = backward, False
    try:
        yield
    finally:
        InterpreterBuilder.set_grid_idx, InterpreterBuilder.may_batch = forward, True


MOST_PROGRAMS = (2**31 - 1, 65535, 65535)
"""CUDA's limits on the dimensions of a grid."""

TF32_BITS = np.uint32(0xFFFFE000)
"""Bits of a float32 that tensor cores read."""

_LARGE = 2.0**126
"""Smaller numbers of float32 can be rounded without any of them becoming infinite."""


def compute_as_on_gpu() -> None:
    """Patches this process's interpreter. ``fix_bfloat16`` must have been called before."""
    _drop_nan()
    _fix_dot()
    compute_reductions()
    _convert_scalars()
    _wrap_integers()
    _bound_grids()
    _require_multiples()
    # The interpreter knows fewer precisions than GPUs have.
    options = interpreter.interpreter_builder.options
    precisions = tuple(dict.fromkeys((*options.allowed_dot_input_precisions, "bf16x3", "bf16x6")))
    interpreter.interpreter_builder.options = replace(options, allowed_dot_input_precisions=precisions)


def _drop_nan() -> None:
    clamp = InterpreterBuilder.create_clampf

    def clamped(builder: Any, value: Any, low: Any, high: Any, propagate: Any) -> Any:
        if value.dtype.scalar == tl.bfloat16:
            wide = clamped(builder, float32(value), float32(low), float32(high), propagate)
            return TensorHandle(narrow(wide.data), tl.bfloat16)
        if propagate == tl.PropagateNan.ALL:
            return clamp(builder, value, low, high, propagate)
        at_least = builder.binary_op(value, low, np.fmax)
        dropped = builder.binary_op(at_least, high, np.fmin)
        # Bounds ±c compile to one instruction that compares magnitudes: NaN becomes c, not -c.
        data = np.where(np.isnan(value.data) & (low.data == -high.data), high.data, dropped.data)
        return TensorHandle(data, dropped.dtype)

    InterpreterBuilder.create_clampf = clamped
    InterpreterBuilder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
    InterpreterBuilder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)


def _fix_dot() -> None:
    dot, fma = InterpreterBuilder.create_dot, InterpreterBuilder.create_fma

    def rounded_dot(builder: Any, a: Any, b: Any, c: Any, precision: Any, *rest: Any) -> Any:
        def product(x: Any, y: Any, z: Any) -> Any:
            return dot(builder, float32(x), float32(y), z, precision, *rest)

        if a.dtype.scalar != tl.float32 or precision not in _PARTS:
            return product(a, b, c)
        of_a, of_b = _parts(a.data, _PARTS[precision]), _parts(b.data, _PARTS[precision])
        count = len(of_a)
        if count == 1:
            return product(of_a[0], of_b[0], c)
        sums = TensorHandle(np.zeros((1,) * c.data.ndim, c.data.dtype), c.dtype.scalar)
        for smallness in range(count - 1, 0, -1):
            for i in range(smallness + 1):
                sums = product(of_a[i], of_b[smallness - i], sums)
        if (lost := np.isnan(sums.data)).any():  # infinity less its first part is no number
            sums = TensorHandle(np.where(lost, np.zeros_like(sums.data), sums.data), sums.dtype)
        sums = product(of_a[0], of_b[0], sums)
        return TensorHandle(sums.data + c.data, c.dtype.scalar)

    def rounded_fma(builder: Any, x: Any, y: Any, z: Any) -> Any:
        result = fma(builder, *map(float32, (x, y, z)))
        return TensorHandle(narrow(result.data), tl.bfloat16) if z.dtype.scalar == tl.bfloat16 else result

    InterpreterBuilder.create_dot, InterpreterBuilder.create_fma = rounded_dot, rounded_fma


def _wrap_integers() -> None:
    def constant(dtype: Any) -> Callable[[Any, Any], Any]:
        kind = np.dtype(interpreter._get_np_dtype(dtype))
        low, size = int(np.iinfo(kind).min), 1 << np.iinfo(kind).bits

        def wrapped(builder: Any, value: Any) -> Any:
            return TensorHandle(np.array([(int(value) - low) % size + low], kind), dtype)

        return wrapped

    for name in (*tl.dtype.SINT_TYPES, *tl.dtype.UINT_TYPES):
        if name != "int1":
            setattr(InterpreterBuilder, f"get_{name}", constant(getattr(tl, name)))


def _convert_scalars() -> None:
    convert = interpreter._implicit_cvt

    def scalar(argument: Any) -> Any:
        if isinstance(argument, bool):
            return tl.tensor(TensorHandle(np.array([argument]), tl.int1), tl.int1)
        if isinstance(argument, float):
            return tl.tensor(TensorHandle(np.array([argument], np.float32), tl.float32), tl.float32)
        return convert(argument)

    interpreter._implicit_cvt = scalar


def _bound_grids() -> None:
    accept = InterpreterBuilder.set_grid_dim

    def bounded(builder: Any, *sizes: int) -> None:
        if any(size > most for size, most in zip(sizes, MOST_PROGRAMS, strict=True)):
            raise ValueError(f"a grid of {sizes} programs is larger than CUDA's limits of {MOST_PROGRAMS}")
        accept(builder, *sizes)

    InterpreterBuilder.set_grid_dim = bounded


def _require_multiples() -> None:
    def stated(handle: Any, key: str, values: Any) -> None:
        # Of each program; others follow from contiguity.
        first = handle.data.reshape(len(handle.data), -1)[:, 0]
        if key == "tt.divisibility" and len(values) == 1 and np.any(first % values[0]):
            raise AssertionError(f"tl.multiple_of states that {first.max()} is a multiple of {values[0]}")
        state(handle, key, values)

    state = TensorHandle.set_attr
    TensorHandle.set_attr = stated


def _cut(data: np.ndarray, usual: bool) -> np.ndarray:
    """Returns float32 numbers as tensor cores read them, with 10 bits of the mantissa."""
    cut = (data.view(np.uint32) & TF32_BITS).view(np.float32)
    return cut if usual else np.where(np.isnan(data), data, cut)


def _to_nearest(data: np.ndarray, usual: bool) -> np.ndarray:
    """Returns float32 numbers rounded to TF32, halves away from zero."""
    rounded = (data.view(np.uint32) + np.uint32(0x1000)).view(np.float32)
    return _cut(rounded if usual else np.where(np.isfinite(data), rounded, data), usual)


def _to_bfloat16(data: np.ndarray, usual: bool) -> np.ndarray:
    """Returns float32 numbers rounded to bfloat16."""
    return widen(narrow(data))


_PARTS = {
    getattr(ir.INPUT_PRECISION, name): cuts
    for name, cuts in {
        "TF32": (_cut,),
        "TF32x3": (_to_nearest, _cut),  # Triton rounds the first part, and tensor cores cut the second
        "BF16x3": (_to_bfloat16,) * 2,
        "BF16x6": (_to_bfloat16,) * 3,
    }.items()
    if hasattr(ir.INPUT_PRECISION, name)  # older versions of Triton have fewer
}
"""What the parts of a factor are that are multiplied, by the precision that a kernel asks for."""


def _parts(rest: np.ndarray, cuts: Sequence[Callable[[np.ndarray, bool], np.ndarray]]) -> list[Any]:
    """Returns a first part of float32 numbers, and those of what is left."""
    parts: list[Any] = []
    # Not so large that one overflows when it is rounded, nor NaN.
    usual = bool(rest.size) and rest.min() > -_LARGE and rest.max() < _LARGE
    with np.errstate(invalid="ignore"):
        for cut in cuts:
            if parts:
                rest = rest - parts[-1].data
            parts.append(TensorHandle(cut(rest, usual), tl.float32))
    return parts


def float32(handle: Any) -> Any:
    """Returns a tensor of bfloat16, or of floats of 8 bits, as float32; others unchanged."""
    if handle.dtype.scalar == tl.bfloat16:
        return TensorHandle(widen(handle.data), tl.float32)
    return eight_bits.widen(handle)

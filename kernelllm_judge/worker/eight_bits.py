"""Converts floats of 8 bits in Triton's interpreter as a GPU does: to the nearest, halves to even, and what is too large to the
largest number. The interpreter of Triton 3.7 loses the carry where rounding reaches the next power of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

FORMATS = {
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
    tl.float8e4b8: torch.float8_e4m3fnuz,
    tl.float8e5b16: torch.float8_e5m2fnuz,
}
"""Triton's formats, as PyTorch names them."""

_VALUES = {
    kind: torch.arange(256, dtype=torch.uint8).view(dtype).float().numpy() for kind, dtype in FORMATS.items()
}
"""What the codes of each format stand for, in float32. From 0 on they grow with their codes, as far as they are finite."""


def widen(handle: Any) -> Any:
    """Returns a tensor of 8-bit floats as float32; others unchanged."""
    values = _VALUES.get(handle.dtype.scalar)
    return handle if values is None else TensorHandle(values[handle.data.view(np.uint8)], tl.float32)


def narrow(values: np.ndarray, kind: Any, towards_zero: bool = False) -> np.ndarray:
    """Returns the codes (uint8) of float32 numbers in a format; NaN stays NaN."""
    # Not by torch, whose work would count as the candidate's.
    known = _VALUES[kind]
    rising = known[:128][np.isfinite(known[:128])].astype(np.float64)
    size = np.abs(np.asarray(values, np.float64))
    if towards_zero:
        code = np.searchsorted(rising, size, "right") - 1
    else:
        middles = (rising[1:] + rising[:-1]) / 2
        code = np.searchsorted(middles, size, "left")
        tie = size == middles[np.minimum(code, len(middles) - 1)]
        code = code + (tie & (code % 2 == 1))
    negative = np.signbit(values) & ((code > 0) | ~np.isnan(known[128]))  # some formats have no -0
    return np.where(np.isnan(values), int(np.isnan(known).argmax()), code + 128 * negative).astype(np.uint8)


def convert_eight_bits() -> None:
    """Patches this process's interpreter, in which bfloat16 must be right already."""
    cast, to_float = InterpreterBuilder.cast_impl, InterpreterBuilder.create_fp_to_fp

    def convert(builder: Any, source: Any, target: Any, original: Any, *rounding: Any) -> Any:
        kinds = source.dtype.scalar, target.scalar
        if not FORMATS.keys() & set(kinds):
            return original(builder, source, target, *rounding)
        wide = widen(source)
        if wide.dtype.scalar != tl.float32:
            wide = cast(builder, wide, tl.float32)
        if target.scalar in FORMATS:
            towards_zero = ir.ROUNDING_MODE.RTZ in rounding
            return TensorHandle(narrow(wide.data, target.scalar, towards_zero), target.scalar)
        return wide if target.scalar == tl.float32 else cast(builder, wide, target)

    InterpreterBuilder.cast_impl = lambda self, source, target: convert(self, source, target, cast)
    InterpreterBuilder.create_fp_to_fp = lambda self, source, target, rounding: convert(
        self, source, target, to_float, rounding
    )

"""Says of the operands of a decision which are bounds that nothing crosses, and which values a cast loses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import triton.language as tl

from kernelllm_judge.worker.dependence import LOADED
from kernelllm_judge.worker.gpu_semantics import float32


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
    """Whether a cast may lose something, by the types."""
    source = value.dtype.scalar
    if value.data.dtype.kind == "b":
        return False
    if source.is_floating():
        return not target.is_floating() or target.primitive_bitwidth < source.primitive_bitwidth
    if target.is_floating():
        return bool(source.primitive_bitwidth > target.fp_mantissa_width + 1)
    return bool(target.primitive_bitwidth < source.primitive_bitwidth and target is not tl.int1)


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

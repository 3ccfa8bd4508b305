"""Patches reductions and scans of Triton's interpreter: all programs that run at once, and as a GPU computes them.

- ``tl.max`` and ``tl.min`` with indices compare pairs of elements, so they may lose a NaN.
- ``tl.reduce`` with a function of the kernel's own combines halves, and not one element after the other.
- ``tl.sum`` of float16 and bfloat16 does so, too, and rounds each sum.
- Sums of integers wrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import ReduceOps, ReduceScanOpInterface, ScanOps, TensorHandle


def compute_reductions() -> None:
    """Patches this process's interpreter."""

    def converted(reduction: Any, result: np.ndarray, dtype: Any) -> Any:
        shape = list(result.shape[1:])
        handle = TensorHandle(result.astype(interpreter._get_np_dtype(dtype)), dtype.scalar)
        return tl.tensor(handle, tl.block_type(dtype, shape) if shape else dtype)

    def rounded_total(reduction: Any, value: Any) -> Any:
        if value.dtype.scalar in (tl.bfloat16, tl.float16):
            return reduction.generic_reduce([value])[0]
        data, axis = _rows(reduction, value)
        return _reduced(reduction, np.sum(data, axis=axis), value, value.dtype)

    def pairwise(reduction: Any, value: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        value = value[0] if isinstance(value, tuple) else value
        data, axis = _rows(reduction, value)
        if idx_reduce_op is None:
            return _reduced(reduction, val_reduce_op(data, axis=axis), value, value.dtype)
        best, index = val_reduce_op(data, axis=axis), idx_reduce_op(data, axis=axis)
        if data.dtype.kind == "f" and np.isnan(data).any():
            better = np.greater if idx_reduce_op is np.argmax else np.less
            rows = np.moveaxis(data, axis, 0)
            chosen, place = rows[0], np.zeros(rows[0].shape, np.int32)
            for i in range(1, len(rows)):
                keep = better(chosen, rows[i]) | (chosen == rows[i])
                chosen, place = np.where(keep, chosen, rows[i]), np.where(keep, place, i)
            losing = np.isnan(data).reshape(len(data), -1).any(1).reshape(-1, *[1] * (best.ndim - 1))
            best, index = np.where(losing, chosen, best), np.where(losing, place, index)
        return _reduced(reduction, best, value, value.dtype), _reduced(reduction, index, value, tl.int32)

    def in_halves(reduction: Any, inputs: Any) -> Any:
        axis = _rows(reduction, inputs[0])[1]
        given = [np.moveaxis(_rows(reduction, value)[0], axis, 1) for value in inputs]
        rows = given
        try:
            while (half := rows[0].shape[1] // 2) > 0:
                parts = [
                    reduction.to_tensor(row[:, part], value.dtype)
                    for part in (slice(half), slice(half, None))
                    for row, value in zip(rows, inputs, strict=True)
                ]
                rows = [each.handle.data for each in _combined(reduction, parts)]
        except ValueError:  # it branches on an element
            rows = [np.moveaxis(row, -1, 1)[:, -1:] for row in one_by_one(reduction, given, inputs)]
        found = zip(rows, inputs, strict=True)
        return [_reduced(reduction, row[:, 0], value, value.dtype) for row, value in found]

    def running(reduction: Any, inputs: Any) -> Any:
        axis = _rows(reduction, inputs[0])[1]
        given = [np.moveaxis(value.handle.data, axis, 1) for value in inputs]
        found = zip(one_by_one(reduction, given, inputs), inputs, strict=True)
        return [reduction.to_tensor(np.moveaxis(row, -1, axis), value.dtype) for row, value in found]

    def one_by_one(reduction: Any, rows: Any, inputs: Any) -> list[np.ndarray]:
        """Combines along the second axis, and returns what comes out at each place, with that axis last."""
        found = [np.moveaxis(row, 1, -1).copy() for row in np.broadcast_arrays(*rows)]
        for place in np.ndindex(found[0].shape[:-1]):
            lines = [row[place] for row in found]
            for i in range(1, len(lines[0])):
                parts = [
                    reduction.to_tensor(line[at : at + 1], value.dtype)
                    for at in (i - 1, i)
                    for line, value in zip(lines, inputs, strict=True)
                ]
                for line, each in zip(lines, _combined(reduction, parts), strict=True):
                    line[i] = each.handle.data.item() if isinstance(each, tl.tensor) else each
        return found

    def along(function: Any) -> Any:
        return lambda scan, inputs: [
            scan.to_tensor(function(*_rows(scan, inputs)).reshape(inputs.handle.data.shape), inputs.dtype)
        ]

    def scanned(scan: Any, inputs: Any) -> Any:
        def turned(values: Any) -> Any:
            if not scan.reverse:
                return values
            return [scan.to_tensor(np.flip(*_rows(scan, value)), value.dtype) for value in values]

        known = {tl.standard._sum_combine: scan.cumsum, tl.standard._prod_combine: scan.cumprod}
        combine = known.get(scan.combine_fn)
        given = turned(inputs)
        return turned(combine(given[0]) if combine else scan.generic_scan(given))

    ReduceScanOpInterface.to_tensor = converted
    ReduceOps.sum, ReduceOps.min_max, ReduceOps.generic_reduce = rounded_total, pairwise, in_halves
    ScanOps.cumsum, ScanOps.cumprod, ScanOps.generic_scan = along(np.cumsum), along(np.cumprod), running
    ScanOps.apply_impl = scanned


def _combined(reduction: Any, parts: Sequence[Any]) -> tuple[Any, ...]:
    combined = reduction.combine_fn.fn(*parts)
    return combined if isinstance(combined, tuple) else (combined,)


def _rows(reduction: Any, value: Any) -> tuple[np.ndarray, int]:
    """Returns a value for a reduction, and its axis behind that of programs; all is one row where there is no axis."""
    data = np.ascontiguousarray(value.handle.data)
    if reduction.axis is None:
        return data.reshape(len(data), -1), 1
    return data, reduction.axis % (data.ndim - 1) + 1


def _reduced(reduction: Any, found: np.ndarray, value: Any, dtype: Any) -> Any:
    """Returns what a reduction made of a value, as a tensor."""
    if reduction.keep_dims:
        shape = value.handle.data.shape
        found = np.expand_dims(
            found, [*range(1, len(shape))] if reduction.axis is None else _rows(reduction, value)[1]
        )
    return reduction.to_tensor(found, dtype)

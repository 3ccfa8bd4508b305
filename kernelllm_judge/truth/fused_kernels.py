"""The Triton kernels behind ``fused``: each reads its inputs once, or row by row from a cache."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# The parameters are Triton's, which has no types for them.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def within_kernel(got_ptr, original_ptr, wrong_ptr, n, share, BLOCK: tl.constexpr):
    """Writes for each block whether an element is off by more than a share of the original's, or not finite."""
    block = tl.program_id(0)
    offsets = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    got = tl.load(got_ptr + offsets, mask, other=0.0).to(tl.float32)
    original = tl.load(original_ptr + offsets, mask, other=0.0).to(tl.float32)
    size = tl.abs(original)
    right = (tl.abs(got - original) <= share * size) & (size < float("inf"))
    tl.store(wrong_ptr + block, tl.max(tl.where(right, 0, 1), 0))


@triton.jit
def largest_kernel(x_ptr, largest_ptr, n, BLOCK: tl.constexpr):
    """Writes the largest finite magnitude of each block, or 0."""
    block = tl.program_id(0)
    offsets = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    size = tl.abs(tl.load(x_ptr + offsets, offsets < n, other=0.0))
    tl.store(largest_ptr + block, tl.max(tl.where(size < float("inf"), size, 0.0), 0))


@triton.jit
def close_kernel(value_ptr, expected_ptr, scale_ptr, wrong_ptr, n, within, BLOCK: tl.constexpr):
    """Writes for each block whether an element is neither close nor the same NaN or infinity."""
    block = tl.program_id(0)
    offsets = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(value_ptr + offsets, mask, other=0.0)
    expected = tl.load(expected_ptr + offsets, mask, other=0.0)
    error = tl.abs(value - expected)
    close = (error <= tl.load(scale_ptr) + within * tl.abs(expected)) & (error < float("inf"))
    same = (value == expected) | ((value != value) & (expected != expected))
    tl.store(wrong_ptr + block, tl.max(tl.where(close | same, 0, 1), 0))


@triton.jit
def products_kernel(integers_ptr, factors_ptr, sums_ptr, n, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    """Writes each block's sum of integers times random factors, modulo 2^64; factors begin anew with each chunk."""
    block = tl.program_id(0).to(tl.int64)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    integers = tl.load(integers_ptr + offsets, mask, other=0).to(tl.int64)
    factors = tl.load(factors_ptr + offsets % CHUNK, mask, other=0)
    tl.store(sums_ptr + block, tl.sum(integers * factors, 0))


@triton.jit
def rows_kernel(
    original_ptr,
    truth_ptr,
    scale_ptr,
    error_ptr,
    together_ptr,
    width,
    least,
    ALIKE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Writes the scale of each row, see ``rows.row_scale``, the largest of the original's errors in units of it, and the
    root mean square of all."""
    row = tl.program_id(0).to(tl.int64)
    start = row * width
    columns = tl.arange(0, BLOCK)
    peak = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, width, BLOCK):
        truth = tl.load(truth_ptr + start + first + columns, first + columns < width, other=0.0)
        peak = tl.maximum(peak, tl.abs(truth))
    top = tl.max(peak, 0)
    squares = tl.zeros((BLOCK,), tl.float64)
    rest = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, width, BLOCK):
        truth = tl.load(truth_ptr + start + first + columns, first + columns < width, other=0.0)
        squares += truth * truth
        rest += tl.where(tl.abs(truth) < ALIKE * top, truth * truth, 0.0)
    others = tl.maximum(tl.sqrt(tl.sum(rest, 0) / width), 1.0)
    scale = tl.minimum(tl.sqrt(tl.sum(squares, 0) / width), others)
    worst = tl.zeros((BLOCK,), tl.float64)
    squares = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, width, BLOCK):
        mask = first + columns < width
        truth = tl.load(truth_ptr + start + first + columns, mask, other=0.0)
        original = tl.load(original_ptr + start + first + columns, mask, other=0.0).to(tl.float64)
        unit = tl.maximum(tl.abs(truth) + scale, least)
        error = tl.abs(original - truth) / unit
        worst = tl.maximum(worst, error)
        squares += error * error
    tl.store(scale_ptr + row, scale)
    tl.store(error_ptr + row, tl.max(worst, 0))
    tl.store(together_ptr + row, tl.sqrt(tl.sum(squares, 0) / width))


@triton.jit
def errors_kernel(
    value_ptr,
    truth_ptr,
    scale_ptr,
    allowed_ptr,
    sensitivity_ptr,
    figures_ptr,
    n_rows,
    width,
    least,
    HAS_SENSITIVITY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Writes for each row how many elements err too much, of the worst one the ratio, the place, the error and what
    is allowed, and the root mean square of the errors: six arrays."""
    row = tl.program_id(0).to(tl.int64)
    start = row * width
    columns = tl.arange(0, BLOCK)
    scale = tl.load(scale_ptr + row)
    bound = tl.load(allowed_ptr + row)
    wrong = tl.zeros((BLOCK,), tl.int64)
    worst = tl.full((BLOCK,), -1.0, tl.float64)
    place = tl.zeros((BLOCK,), tl.int64)
    error_there = tl.zeros((BLOCK,), tl.float64)
    allowed_there = tl.zeros((BLOCK,), tl.float64) + bound
    squares = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, width, BLOCK):
        offsets = first + columns
        mask = offsets < width
        truth = tl.load(truth_ptr + start + offsets, mask, other=0.0)
        value = tl.load(value_ptr + start + offsets, mask, other=0.0).to(tl.float64)
        error = tl.abs(value - truth) / tl.maximum(tl.abs(truth) + scale, least)
        allowed = tl.zeros((BLOCK,), tl.float64) + bound
        if HAS_SENSITIVITY:
            sensitivity = tl.load(sensitivity_ptr + start + offsets, mask, other=0.0)
            allowed = tl.maximum(allowed, sensitivity.to(tl.float64))
        wrong += tl.where((error > allowed) & mask, 1, 0)
        squares += tl.where(mask, error * error, 0.0)
        ratio = tl.where(mask, error / allowed, -1.0)
        higher = ratio > worst
        worst = tl.where(higher, ratio, worst)
        place = tl.where(higher, offsets, place)
        error_there = tl.where(higher, error, error_there)
        allowed_there = tl.where(higher, allowed, allowed_there)
    highest = tl.max(worst, 0)
    column = tl.argmax(worst, 0)
    here = columns == column
    tl.store(figures_ptr + row, tl.sum(wrong, 0).to(tl.float64))
    tl.store(figures_ptr + n_rows + row, highest)
    tl.store(figures_ptr + 2 * n_rows + row, tl.sum(tl.where(here, place, 0), 0).to(tl.float64))
    tl.store(figures_ptr + 3 * n_rows + row, tl.sum(tl.where(here, error_there, 0.0), 0))
    tl.store(figures_ptr + 4 * n_rows + row, tl.sum(tl.where(here, allowed_there, 0.0), 0))
    tl.store(figures_ptr + 5 * n_rows + row, tl.sqrt(tl.sum(squares, 0) / width))


@triton.jit
def columns_kernel(
    value_ptr,
    truth_ptr,
    sums_ptr,
    n_rows,
    width,
    rows_a_part,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """Writes for each part of the rows the sum of the errors' squares in each column: an array of ``(parts, width)``."""
    part = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    column_mask = columns < width
    errors = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float64)
    for first in range(0, rows_a_part, BLOCK_ROWS):
        inside = first + tl.arange(0, BLOCK_ROWS)
        rows = part * rows_a_part + inside
        mask = ((inside < rows_a_part) & (rows < n_rows))[:, None] & column_mask[None, :]
        offsets = rows[:, None] * width + columns[None, :]
        truth = tl.load(truth_ptr + offsets, mask, other=0.0)
        value = tl.load(value_ptr + offsets, mask, other=0.0).to(tl.float64)
        errors += (value - truth) * (value - truth)
    tl.store(sums_ptr + part * width + columns, tl.sum(errors, 0), column_mask)

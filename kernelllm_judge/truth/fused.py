"""Measures large tensors on a GPU in one pass each, where PyTorch's operations would take ten to fifty.

Each function gives what the module that calls it computes with PyTorch's operations elsewhere: ``agreement``, ``slices``,
``fingerprint``, ``bounds`` and ``numerics``. Nothing is read from the GPU here.
"""

from __future__ import annotations

import math

import torch

ALIKE = 0.999
"""Share of a row's largest magnitude from which on elements are as large, see ``rows.row_scale``."""

BLOCK = 4096
"""Elements that a program takes at once, where rows do not matter."""

LONGEST = 1 << 16
"""Elements of the longest row that one program measures…"""

FEWEST = 256
"""…where there are so many rows."""

AT_MOST_FLOAT32 = (torch.float32, torch.bfloat16, torch.float16)


def fits(*tensors: torch.Tensor, dtypes: tuple[torch.dtype, ...]) -> bool:
    """Whether tensors of the same shape can be measured here."""
    return all(t.is_cuda and t.numel() and t.is_contiguous() and t.dtype in dtypes for t in tensors)


def rows_fit(truth: torch.Tensor, *values: torch.Tensor) -> bool:
    """Whether matrices of rows can be measured here: exact ones, and values in at most float32."""
    rows, width = truth.shape
    enough = rows >= FEWEST and width <= LONGEST
    return enough and fits(truth, dtypes=(torch.float64,)) and fits(*values, dtypes=AT_MOST_FLOAT32)


def columns_fit(truth: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether matrices can be measured column by column here."""
    return (
        len(truth) >= FEWEST and fits(truth, dtypes=(torch.float64,)) and fits(value, dtypes=AT_MOST_FLOAT32)
    )


def within(got: torch.Tensor, original: torch.Tensor, share: float) -> torch.Tensor:
    """See ``agreement.each_agrees``."""
    from kernelllm_judge.truth.fused_kernels import within_kernel

    wrong = _by_block(got, torch.int8)
    within_kernel[(len(wrong),)](got, original, wrong, got.numel(), share, BLOCK=BLOCK)
    return ~wrong.any()


def largest(tensor: torch.Tensor) -> torch.Tensor:
    """See ``rows.largest``."""
    from kernelllm_judge.truth.fused_kernels import largest_kernel

    found = _by_block(tensor, tensor.dtype)
    largest_kernel[(len(found),)](tensor, found, tensor.numel(), BLOCK=BLOCK)
    return found.amax()


def close(value: torch.Tensor, expected: torch.Tensor, within: float) -> torch.Tensor:
    """See ``slices.equal_to_half``: relative to each element, and to the largest."""
    from kernelllm_judge.truth.fused_kernels import close_kernel

    wrong, scale = _by_block(value, torch.int8), within * largest(expected)
    close_kernel[(len(wrong),)](value, expected, scale, wrong, value.numel(), within, BLOCK=BLOCK)
    return ~wrong.any()


def products(integers: torch.Tensor, factors: torch.Tensor, chunk: int) -> torch.Tensor:
    """See ``fingerprint``: the sum of each chunk, a multiple of ``BLOCK``."""
    from kernelllm_judge.truth.fused_kernels import products_kernel

    chunks, blocks = math.ceil(len(integers) / chunk), chunk // BLOCK
    sums = torch.zeros(chunks * blocks, dtype=torch.int64, device=integers.device)
    programs = math.ceil(len(integers) / BLOCK)
    products_kernel[(programs,)](integers, factors, sums, len(integers), CHUNK=chunk, BLOCK=BLOCK)
    return sums.view(chunks, blocks).sum(1)


def row_bounds(
    original: torch.Tensor, truth: torch.Tensor, least: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns each row's scale, the original's largest error, and the root mean square of its errors; see ``rows.Ruler``."""
    from kernelllm_judge.truth.fused_kernels import rows_kernel

    rows, width = truth.shape
    scale, worst, together = (truth.new_empty(rows, 1) for _ in range(3))
    block = min(1024, 1 << (width - 1).bit_length())
    rows_kernel[(rows,)](original, truth, scale, worst, together, width, least, ALIKE=ALIKE, BLOCK=block)
    return scale, worst, together


def errors(
    value: torch.Tensor,
    truth: torch.Tensor,
    scale: torch.Tensor,
    allowed: torch.Tensor,
    sensitivity: torch.Tensor | None,
    least: float,
) -> torch.Tensor:
    """Returns six numbers of each row: how many elements err more than is allowed in it, or by their sensitivity, of the worst
    one the ratio, the place in the flattened tensor, the error and what is allowed, and the root mean square of all errors;
    see ``numerics._Rows``."""
    from kernelllm_judge.truth.fused_kernels import errors_kernel

    rows, width = truth.shape
    figures = truth.new_empty(6, rows)
    errors_kernel[(rows,)](
        value,
        truth,
        scale,
        allowed,
        truth if sensitivity is None else sensitivity,
        figures,
        rows,
        width,
        least,
        HAS_SENSITIVITY=sensitivity is not None,
        BLOCK=min(1024, 1 << (width - 1).bit_length()),
    )
    figures[2] += torch.arange(0, rows * width, width, device=figures.device)
    return figures


def column_rms(value: torch.Tensor, truth: torch.Tensor, peak: float) -> torch.Tensor:
    """Returns the root mean square of the value's errors in each column, relative to ``peak``; see ``rows.group_rms``."""
    from kernelllm_judge.truth.fused_kernels import columns_kernel

    rows, width = truth.shape
    parts = max(1, min(1024, rows // 512))
    rows_a_part = math.ceil(rows / parts)
    sums = truth.new_empty(parts, width)
    columns = 64 if width > 32 else 32
    grid = (math.ceil(width / columns), parts)
    columns_kernel[grid](value, truth, sums, rows, width, rows_a_part, BLOCK_ROWS=16, BLOCK_COLUMNS=columns)
    return sums.sum(0).div_(rows).sqrt_() / peak


def _by_block(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(math.ceil(tensor.numel() / BLOCK), dtype=dtype, device=tensor.device)

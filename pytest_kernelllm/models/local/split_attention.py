"""Flash-Decoding in Triton: rows of different lengths, each split over several programs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _attend_kernel(
    query_ptr,
    key_ptr,
    value_ptr,
    lengths_ptr,
    mixed_ptr,
    top_ptr,
    sum_ptr,
    scale,
    length,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Computes the softmax numerator, the largest score and the sum of weights over one part of a row's keys."""
    head = tl.program_id(0)
    part = tl.program_id(1)
    count = tl.load(lengths_ptr + head // HEADS)
    start = part * SPLIT
    group = tl.arange(0, GROUP_BLOCK)
    columns = tl.arange(0, WIDTH)
    out = (head.to(tl.int64) * tl.num_programs(1) + part) * GROUP_BLOCK + group
    if start >= count:
        tl.store(top_ptr + out, tl.full([GROUP_BLOCK], float("-inf"), tl.float32))
        tl.store(sum_ptr + out, tl.zeros([GROUP_BLOCK], tl.float32))
        return
    query = tl.load(
        query_ptr + (head * GROUP + group[:, None]) * WIDTH + columns[None, :],
        mask=group[:, None] < GROUP,
        other=0.0,
    )
    first = head.to(tl.int64) * length * WIDTH
    top = tl.full([GROUP_BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    mixed = tl.zeros([GROUP_BLOCK, WIDTH], tl.float32)
    for begin in range(start, min(start + SPLIT, count), BLOCK):
        tokens = begin + tl.arange(0, BLOCK)
        counts = tokens < count
        places = first + tokens[:, None] * WIDTH + columns[None, :]
        keys = tl.load(key_ptr + places, mask=counts[:, None], other=0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(counts[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(top - higher)
        values = tl.load(value_ptr + places, mask=counts[:, None], other=0.0)
        mixed = mixed * shrink[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        total = total * shrink + tl.sum(weights, 1)
        top = higher
    tl.store(mixed_ptr + out[:, None] * WIDTH + columns[None, :], mixed)
    tl.store(top_ptr + out, top)
    tl.store(sum_ptr + out, total)


@triton.jit
def _combine_kernel(
    mixed_ptr,
    top_ptr,
    sum_ptr,
    out_ptr,
    parts,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Combines the parts of one query."""
    head = tl.program_id(0)
    query = tl.program_id(1)
    part = tl.arange(0, PARTS)
    columns = tl.arange(0, WIDTH)
    places = (head.to(tl.int64) * parts + part) * GROUP_BLOCK + query
    tops = tl.load(top_ptr + places, mask=part < parts, other=float("-inf"))
    sums = tl.load(sum_ptr + places, mask=part < parts, other=0.0)
    weights = tl.exp(tops - tl.max(tops, 0))
    # Parts without keys were never written.
    mixed = tl.load(
        mixed_ptr + places[:, None] * WIDTH + columns[None, :], mask=(sums > 0.0)[:, None], other=0.0
    )
    out = tl.sum(mixed * weights[:, None], 0) / tl.sum(sums * weights, 0)
    tl.store(out_ptr + (head * GROUP + query) * WIDTH + columns, out)


def block_of(width: int, itemsize: int) -> int:
    """Returns the number of keys per load: 16 KiB, so that several loads fit into the shared memory of any GPU."""
    return max(16, min(64, (16 << 10) // (width * itemsize)))


def split_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    split: int,
) -> torch.Tensor:
    """Computes attention of queries over the first ``lengths`` keys of their row.

    Args:
        query: ``[rows, key heads, group, width]``, grouped by shared keys; ``width`` is a power of two of at
            least 16.
        key: ``[rows, key heads, length, width]``, contiguous.
        value: like ``key``.
        lengths: int64 ``[rows]``, at least 1.
        scale: the factor of the scores.
        split: number of keys that one program reads, a multiple of 64.

    Returns:
        A tensor like ``query``.
    """
    rows, heads, group, width = query.shape
    length = key.shape[2]
    parts = triton.cdiv(length, split)
    block = max(16, triton.next_power_of_2(group))  # tensor cores need at least 16 rows
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    mixed = torch.empty((rows * heads, parts, block, width), dtype=torch.float32, device=query.device)
    top = torch.empty((rows * heads, parts, block), dtype=torch.float32, device=query.device)
    total = torch.empty_like(top)
    _attend_kernel[(rows * heads, parts)](
        query.contiguous(),
        key,
        value,
        lengths,
        mixed,
        top,
        total,
        scale,
        length,
        HEADS=heads,
        GROUP=group,
        GROUP_BLOCK=block,
        WIDTH=width,
        SPLIT=split,
        BLOCK=block_of(width, key.itemsize),
        num_warps=4,
    )
    _combine_kernel[(rows * heads, group)](
        mixed,
        top,
        total,
        out,
        parts,
        GROUP=group,
        GROUP_BLOCK=block,
        WIDTH=width,
        PARTS=triton.next_power_of_2(parts),
        num_warps=4,
    )
    return out

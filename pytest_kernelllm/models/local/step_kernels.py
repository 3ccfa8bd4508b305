"""Triton kernels that replace sequences of small operations in a decode step."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _turn(source, target, cos, sin, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rotates one vector of one head: pairs of elements half a width apart, each by its own angle."""
    half: tl.constexpr = WIDTH // 2
    i = tl.arange(0, BLOCK)
    there = i < half
    first = tl.load(source + i, mask=there).to(tl.float32)
    second = tl.load(source + half + i, mask=there).to(tl.float32)
    turned = first * tl.load(cos + i, mask=there) - second * tl.load(sin + i, mask=there)
    tl.store(target + i, turned, mask=there)
    turned = second * tl.load(cos + half + i, mask=there) + first * tl.load(sin + half + i, mask=there)
    tl.store(target + half + i, turned, mask=there)


@triton.jit
def _rotate_kernel(
    query_ptr,
    key_ptr,
    cos_ptr,
    sin_ptr,
    query_out_ptr,
    key_out_ptr,
    tokens,
    query_row,
    query_head,
    query_token,
    key_row,
    key_head,
    key_token,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rotates one head of one token, of the queries or of the keys."""
    place = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    row = place // tokens
    token = place % tokens
    cos, sin = cos_ptr + place * WIDTH, sin_ptr + place * WIDTH
    if head < HEADS:
        source = query_ptr + row * query_row + head * query_head + token * query_token
        target = query_out_ptr + ((row * HEADS + head) * tokens + token) * WIDTH
        _turn(source, target, cos, sin, WIDTH, BLOCK)
    else:
        head -= HEADS
        source = key_ptr + row * key_row + head * key_head + token * key_token
        target = key_out_ptr + ((row * KEY_HEADS + head) * tokens + token) * WIDTH
        _turn(source, target, cos, sin, WIDTH, BLOCK)


def rotate(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Applies rotary position embedding (Su et al. 2021) to queries and keys; the halves of a head form pairs.

    Args:
        query: ``[rows, heads, tokens, width]``, the last dimension dense.
        key: ``[rows, key heads, tokens, width]``, likewise.
        cos: ``[rows, tokens, width]``.
        sin: like ``cos``.

    Returns:
        Both rotated and contiguous, computed in float32 and rounded once.
    """
    rows, heads, tokens, width = query.shape
    turned = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (query, key)]
    _rotate_kernel[(rows * tokens, heads + key.shape[1])](
        query,
        key,
        cos.contiguous(),
        sin.contiguous(),
        *turned,
        tokens,
        *query.stride()[:3],
        *key.stride()[:3],
        HEADS=heads,
        KEY_HEADS=key.shape[1],
        WIDTH=width,
        BLOCK=triton.next_power_of_2(width // 2),
        num_warps=1,
    )
    return turned[0], turned[1]


@triton.jit
def _store_kernel(
    key_ptr,
    value_ptr,
    keys_ptr,
    values_ptr,
    positions_ptr,
    length,
    key_row,
    key_head,
    value_row,
    value_head,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Stores one head of one row."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    i = tl.arange(0, BLOCK)
    there = i < WIDTH
    target = ((row * tl.num_programs(1) + head) * length + tl.load(positions_ptr + row)) * WIDTH + i
    tl.store(
        keys_ptr + target, tl.load(key_ptr + row * key_row + head * key_head + i, mask=there), mask=there
    )
    value = tl.load(value_ptr + row * value_row + head * value_head + i, mask=there)
    tl.store(values_ptr + target, value, mask=there)


def store(
    key: torch.Tensor, value: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor
) -> None:
    """Stores one token's key and value of every row at the row's position.

    Args:
        key: ``[rows, heads, 1, width]``, the last dimension dense.
        value: likewise.
        keys: ``[rows, heads, length, width]``, contiguous; written to.
        values: likewise.
        positions: int64 ``[rows]``, less than ``length``.
    """
    rows, heads, _, width = key.shape
    _store_kernel[(rows, heads)](
        key,
        value,
        keys,
        values,
        positions,
        keys.shape[2],
        *key.stride()[:2],
        *value.stride()[:2],
        WIDTH=width,
        BLOCK=triton.next_power_of_2(width),
        num_warps=1,
    )

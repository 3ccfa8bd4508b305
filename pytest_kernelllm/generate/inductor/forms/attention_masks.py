"""Masks of attention: how they lie for its kernel, and which blocks of keys they leave out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from pytest_kernelllm.generate.inductor.forms.form import Writer, aten

_FEWEST_BLOCKS = 4
"""Blocks of queries and of keys from which a mask may leave out whole ones that are worth finding."""
_FEWEST_HEADS = 4
"""Heads that must share a mask for that."""


@dataclass(frozen=True)
class Mask:
    """What is added to scores, or tells which of them count."""

    node: Node
    sizes: tuple[Any, ...]
    """Of the scores to which it is added, from which it may lack leading dimensions."""

    @property
    def own(self) -> list[Any]:
        """Its own sizes, with ones for the dimensions that it lacks."""
        shape = list(self.node.meta["val"].shape)
        return [1] * (len(self.sizes) - len(shape)) + shape

    def fits(self, batch: Any, rest: tuple[int, ...]) -> bool:
        """Whether scores were (batch, heads, queries, keys), or had the batch in two dimensions; and whether it differs among them."""
        *lead, heads, queries, keys = self.sizes
        return (
            len(lead) in (1, 2)
            and same((math.prod(lead), heads, queries, keys), (batch, *rest))
            and self.node.meta["val"].shape[-2:].numel() > 1
            and queries * keys > 1
        )

    def laid_out(self, write: Writer, inner: int) -> Node:
        """Returns it as (outer batch, inner batch, heads, queries, keys)."""
        whole = write(aten.expand.default, self.node, list(self.sizes))
        *lead, queries, keys = self.sizes
        if len(lead) == 3:
            return whole
        batch, heads = lead
        return write(aten.view.default, whole, [batch // inner, inner, heads, queries, keys])


def same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether sizes are equal for every batch."""
    return all(statically_known_true(a == b) for a, b in zip(some, others, strict=True))


def used_blocks(
    write: Writer,
    operands: tuple[Node, Node, Node],
    masks: Sequence[Mask],
    inner: int,
    block: tuple[int, int],
) -> list[Node]:
    """Returns what ``ATTENTION`` calls ``used``, if a mask of booleans may leave out many blocks for many heads, else nothing.

    It costs as much as reading the mask, the queries, the keys and the values once.

    Args:
        operands: queries, keys and values: (batch, heads, length, size).
        inner: the inner batch of masks.
        block: queries and keys of a block.
    """
    chosen = [mask for mask in masks if mask.node.meta["val"].dtype is torch.bool]
    if len(chosen) != 1:
        return []
    (mask,), (query, key, value), (rows, columns) = chosen, operands, block
    *lead, once, queries, width = mask.own
    keys = value.meta["val"].shape[2]
    blocks = -(-queries // rows), -(-keys // columns)
    if once != 1 or width != keys or mask.sizes[-3] < _FEWEST_HEADS or min(blocks) < _FEWEST_BLOCKS:
        return []
    after = [0, blocks[1] * columns - keys, 0, blocks[0] * rows - queries]
    each = write(aten.view.default, mask.node, mask.own)
    each = write(aten.constant_pad_nd.default, each, after, False)
    each = write(aten.view.default, each, [*lead, once, blocks[0], rows, blocks[1], columns])
    counts = Mask(write(aten.amax.default, each, [-3, -1]), (*mask.sizes[:-2], *blocks))
    return [counts.laid_out(write, inner), _odd(write, (key, value), columns), _odd(write, (query,), rows)]


def _odd(write: Writer, tensors: Sequence[Node], rows: int) -> Node:
    """Returns which blocks of rows of any tensor have NaN or an infinity: (batch, heads, blocks)."""
    batch, heads, length, size = tensors[0].meta["val"].shape
    blocks = -(-length // rows)
    tests = [write(test, each) for each in tensors for test in (aten.isnan.default, aten.isinf.default)]
    odd = reduce(partial(write, aten.bitwise_or.Tensor), tests)
    odd = write(aten.constant_pad_nd.default, odd, [0, 0, 0, blocks * rows - length], False)
    odd = write(aten.view.default, odd, [batch, heads, blocks, rows * size])
    return write(aten.amax.default, odd, [-1])

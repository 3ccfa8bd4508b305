"""Counts the operations of fused attention, with fewer heads of keys than of queries, and of causal ones only what is needed.

PyTorch's own formulas (2.11) count all pairs of positions, and fail where queries have more heads than keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

PREFIX = "_scaled_dot_product_"

Formula = Callable[..., int]


def attention_formulas() -> dict[Any, Formula]:
    """Returns a formula for each operation of fused attention in this PyTorch, for ``FlopCounterMode``."""
    return {packet: _formula(packet) for packet in _packets()}


def _packets() -> Iterator[Any]:
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if name.startswith(PREFIX) and {"query", "key", "value", "is_causal"} <= set(_names(packet)):
            yield packet


def _names(packet: Any) -> list[str]:
    return [argument.name for argument in packet.default._schema.arguments]


def _formula(packet: Any) -> Formula:
    names, backward = _names(packet), packet.__name__.endswith("_backward")

    def count(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        given = dict(zip(names, args, strict=False)) | kwargs
        query, key, value = (given[name].shape for name in ("query", "key", "value"))
        rows, columns = query[-2], key[-2]
        pairs = _below_the_diagonal(rows, columns) if given.get("is_causal") else rows * columns
        # One product with the keys and one with the values; backwards two with each.
        widths = (query[-1] + value[-1]) * (2 if backward else 1)
        heads = query[:-2].numel()
        return int(2 * heads * pairs * widths)

    count._get_raw = True  # type: ignore[attr-defined]  # tensors, not their shapes
    return count


def _below_the_diagonal(rows: int, columns: int) -> int:
    """How many pairs a causal mask keeps, with the diagonal, from the first row and column on."""
    square = min(rows, columns)
    return square * (square + 1) // 2 + (rows - square) * columns

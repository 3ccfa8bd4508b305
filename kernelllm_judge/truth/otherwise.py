"""How other honest implementations may compute a result: in another order, and in TF32 where PyTorch may use it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from kernelllm_judge.truth.reordered import Reordered
from kernelllm_judge.truth.scans import BLOCKS, Scanned
from kernelllm_judge.truth.tf32 import InTf32, allowed_operations, farthest

Mode = Reordered | Scanned | InTf32
Tensors = list[torch.Tensor]


def modes(*, tf32: bool) -> list[Mode]:
    """Returns the contexts in which an original computes as another implementation may, where settings allow it in ``tf32``, too."""
    orders: list[Mode] = [Reordered(), *map(Scanned, BLOCKS)]
    if not tf32:
        return orders
    return [*orders, *(InTf32(allowed_operations(), truncated=how) for how in (False, True))]


@dataclass
class Otherwise:
    """What other implementations gave, as ``numerics.expect`` takes it."""

    others: list[tuple[Tensors, Tensors]] = field(default_factory=list)
    nearby: list[Tensors] = field(default_factory=list)
    terms: int = 0


def collect(found: Iterable[tuple[Mode, Tensors]], exact: Tensors) -> Otherwise:
    """Collects results.

    Args:
        found: the modes that changed anything, in the order of ``modes``, with the leaves that they gave.
        exact: the same leaves in float64.
    """
    collected = Otherwise()
    rounded: Tensors | None = None
    for mode, leaves in found:
        if isinstance(mode, InTf32) and mode.truncated:
            if rounded is not None:  # else the original fails with rounded factors
                collected.nearby.append(farthest(rounded, leaves, exact))
            continue
        collected.others.append((leaves, exact))
        if isinstance(mode, InTf32):
            rounded = leaves
        elif isinstance(mode, Reordered):
            collected.terms = mode.terms
    return collected

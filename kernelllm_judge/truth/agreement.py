"""Tells which outputs are so near to the original's that they need no comparison with float64.

An output that agrees passes ``numerics.compare`` whatever float64 gives. Nothing is read here but by ``every``: on a GPU each
read waits, most of all where processes share it.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from kernelllm_judge.core.eight_bits import at_least_float32
from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.rows import as_rows, chunks


def every(flags: Iterable[torch.Tensor | bool]) -> bool:
    """Whether all of some booleans are true; those on a device are read from it at once."""
    found = list(flags)
    tensors = [flag for flag in found if isinstance(flag, torch.Tensor)]
    return all(flag is not False for flag in found) and (not tensors or bool(torch.stack(tensors).all()))


def agrees(
    got: torch.Tensor, original: torch.Tensor, policy: Policy, tolerance: float | None = None
) -> torch.Tensor:
    """Returns whether each element differs by no more than half of the error that is always allowed, and is finite.

    So does each group of elements then, whose size they make up.

    Args:
        original: the original's, of the same shape and dtype.
    """
    if not (got.is_floating_point() and got.numel()):
        return (got == original).all()
    # In 16 bits or fewer one more rounding is much of what elements may be off together, so they have to be equal.
    floor = 0.0 if got.itemsize < 4 else policy.single_eps * torch.finfo(got.dtype).eps
    share = min(floor, floor if tolerance is None else tolerance) / 2
    ours, theirs = as_rows(got), as_rows(original)
    return torch.stack([_within(ours[a:b], theirs[a:b], share) for a, b in chunks(ours, policy)]).all()


def _within(got: torch.Tensor, original: torch.Tensor, share: float) -> torch.Tensor:
    """Returns whether each element differs by no more than a share of the original's, and is finite."""
    wide = at_least_float32(got.dtype)
    near = original.to(wide)
    return ((got.to(wide) - near).abs_() <= share * near.abs()).all() & near.sum().isfinite()

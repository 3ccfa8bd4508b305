"""Tells which outputs are so near to the original's that they need no comparison with float64.

An output that agrees passes ``numerics.compare`` whatever float64 gives. Nothing is read here but by ``agrees`` and
``every``: on a GPU each read waits, most of all where processes share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth import fused
from kernelllm_judge.truth.bounds import is_half
from kernelllm_judge.truth.rows import (
    as_rows,
    chunks,
    group_rms,
    largest,
    row_scale,
    together_dims,
    unit_of,
)

ALIKE = 0.9
"""Elements of the original's that come so near to a row's largest may come even nearer to it exactly, see ``row_scale``."""


Agree = Callable[[torch.Tensor, torch.Tensor, Policy], torch.Tensor]
"""Returns whether an output agrees with the original's."""


def every(flags: Iterable[torch.Tensor | bool]) -> bool:
    """Whether all of some booleans are true; those on a device are read from it at once."""
    found = list(flags)
    tensors = [flag for flag in found if isinstance(flag, torch.Tensor)]
    return all(flag is not False for flag in found) and (not tensors or bool(torch.stack(tensors).all()))


def agrees(got: torch.Tensor, original: torch.Tensor, policy: Policy, tolerance: float | None = None) -> bool:
    """Whether an output is right because the original is. For the arguments see ``agrees_together``."""
    return any(bool(agree(got, original, policy, tolerance)) for agree in (each_agrees, agrees_together))


def each_agrees(
    got: torch.Tensor, original: torch.Tensor, policy: Policy, tolerance: float | None = None
) -> torch.Tensor:
    """Returns whether each element differs by no more than half of the error that is always allowed, and is finite.

    So does each group of elements then, whose size they make up. For the arguments see ``agrees_together``.
    """
    if not (got.is_floating_point() and got.numel()):
        return (got == original).all()
    share = _floor(got.dtype, policy, tolerance) / 2
    if fused.fits(got, original, dtypes=fused.AT_MOST_FLOAT32):
        return fused.within(got, original, share)
    ours, theirs = as_rows(got), as_rows(original)
    flags = [_within(ours[a:b], theirs[a:b], share) for a, b in chunks(ours, policy)]
    return torch.stack(flags).all()


def agrees_together(
    got: torch.Tensor, original: torch.Tensor, policy: Policy, tolerance: float | None = None
) -> torch.Tensor:
    """Returns whether an output is so near to the original's that the original's own error makes up for the rest.

    Half of the error that is always allowed may lie between both, in every element, and in a group of elements together.

    Args:
        original: the original's, of the same shape and dtype.
    """
    if not (got.is_floating_point() and got.numel()):
        return (got == original).all()
    floor = _floor(got.dtype, policy, tolerance)
    ours, theirs = as_rows(got), as_rows(original)
    flags = []
    for start, stop in chunks(ours, policy):
        g, o = ours[start:stop], theirs[start:stop]
        if g.dtype != torch.float64:
            g, o = g.float(), o.float()
        finite = o.nan_to_num(0.0, 0.0, 0.0)
        scale = row_scale(finite, ALIKE)
        allowed = floor / 2 * unit_of(finite, scale, got.dtype, True)
        # Near the largest numbers of float32 a difference or a unit overflows, and then float64 must tell.
        close = ((g - o).abs_() <= allowed) & allowed.isfinite()
        flags.append((close | (g == o) | (g.isnan() & o.isnan())).all())
    peak = largest(original).double().clamp_min(torch.finfo(got.dtype).tiny)
    for dim in together_dims(original):
        size = group_rms(None, original, dim, peak, policy)
        flags.append((group_rms(got, original, dim, peak, policy) <= floor / 2 * size).all())
    return torch.stack(flags).all()


def _floor(dtype: torch.dtype, policy: Policy, tolerance: float | None) -> float:
    # In half precision one more rounding is much of what elements may be off together, so they have to be equal.
    floor = 0.0 if is_half(dtype) else policy.single_eps * torch.finfo(dtype).eps
    return min(floor, floor if tolerance is None else tolerance)


def _within(got: torch.Tensor, original: torch.Tensor, share: float) -> torch.Tensor:
    """Returns whether each element differs by no more than a share of the original's, and is finite."""
    wide = torch.promote_types(got.dtype, torch.float32)
    near = original.to(wide)
    return ((got.to(wide) - near).abs_() <= share * near.abs()).all() & near.sum().isfinite()

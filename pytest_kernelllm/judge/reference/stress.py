"""Stress: a user's inputs, made hard to compute with, without leaving their meaning.

Only tensors that look like real-valued data are touched: floating, finite, of both signs and not all whole. So
indices, counts, masks, ±1 labels, probabilities and variances stay what they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch

Rows = torch.Tensor
"""Of one input, ``(rows, last dimension)``, in float32 or wider."""
Transform = Callable[[Rows, torch.Generator, float], Rows]
"""Takes rows, where random numbers come from, and the largest number of the input's dtype."""

NEAR_DUPLICATE = "a few other values"
"""By name, what makes the twin of an input: other values of the same kind in a few places, which a kernel that knows
earlier inputs by some of their values takes for the same input."""

PLANTED = MappingProxyType(
    {
        "NaN": (math.nan,),
        "+inf": (math.inf,),
        "-inf": (-math.inf,),
        "NaN and ±inf": (math.nan, math.inf, -math.inf),
    }
)
"""By name, the values that are planted, each in a row of its own as far as there are rows."""


def real_valued(value: Any) -> bool:
    """Whether ``value`` is a tensor of ordinary real numbers, which have no meaning but their value."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.numel() < 2:
        return False
    signed = (value < 0).any() & (value > 0).any()
    whole = (value == value.round()).all()
    return bool(signed & ~whole & value.isfinite().all())


def stressed(arguments: dict[str, Any], name: str, seed: int) -> dict[str, Any]:
    """The arguments with every real-valued tensor changed; the others are the same objects.

    Args:
        arguments: by parameter name.
        name: of ``TRANSFORMS`` or ``PLANTED``, or ``NEAR_DUPLICATE``.
        seed: the judge's secret; the same rows of several inputs are treated alike.
    """
    return {k: _changed(v, name, seed) if real_valued(v) else v for k, v in arguments.items()}


def _changed(value: torch.Tensor, name: str, seed: int) -> torch.Tensor:
    generator = torch.Generator(value.device).manual_seed(seed)
    wide = value.reshape(-1, value.shape[-1]).to(torch.promote_types(value.dtype, torch.float32))
    if name in PLANTED:
        return plant(wide, PLANTED[name], generator).to(value.dtype).reshape(value.shape)
    largest = torch.finfo(value.dtype).max
    wide = (
        _few_others(wide, generator) if name == NEAR_DUPLICATE else TRANSFORMS[name](wide, generator, largest)
    )
    return wide.clamp(-largest, largest).to(value.dtype).reshape(value.shape)


def plant(rows: Rows, values: tuple[float, ...], generator: torch.Generator) -> Rows:
    """Write each value over some elements of a row; in rows of their own, so that a row's output shows one of them.

    Not over one element only: a mask or a step may hide that.
    """
    planted = rows.clone()
    width = rows.shape[1]
    chosen = _permutation(len(rows), generator).tolist()
    for value, row in zip(values, chosen, strict=False):
        columns = _permutation(width, generator)[: max(1, width // 8)]
        planted[row, columns] = value
    return planted


def _few_others(rows: Rows, generator: torch.Generator) -> Rows:
    # So many that a sum over all of them shows it, and so few that some chosen places probably stay as they were.
    values = rows.flatten().clone()
    count = max(1, min(max(4, len(values) // 256), len(values) // 2))
    places = torch.randint(len(values), (count,), generator=generator, device=rows.device)
    factors = torch.rand(count, generator=generator, device=rows.device) * 2 - 1
    values[places] = values.abs().max() * (factors + factors.sign()) / 2
    return values.reshape(rows.shape)


def _extreme(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
    # So large that the squares of some thousand still add up in the dtype. float16 is summed in float32.
    magnitude = largest / 64 if largest < 1e6 else math.sqrt(largest) / 64
    return rows * (magnitude / rows.abs().max())


def _times(factor: float) -> Transform:
    return lambda rows, generator, largest: rows * factor


def _shifted(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
    # Upwards: far below zero most activations are nothing but their own rounding errors.
    return rows + 100 * rows.std(unbiased=False)


def _large_rows(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
    chosen = _permutation(len(rows), generator) < max(1, len(rows) // 8)
    return torch.where(chosen[:, None], rows * 1e3, rows)


def _equal_rows(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
    return rows[:1].expand_as(rows)


def _equal_values(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
    return rows.abs().amax(1, keepdim=True).expand_as(rows)


def _two_values(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
    return torch.where(rows < 0, -1, 1) * rows.abs().amax(1, keepdim=True)


def _sparse(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
    draw = torch.rand(rows.shape, generator=generator, device=rows.device)
    return torch.where(draw < max(1 / 16, 4 / rows.shape[1]), rows, 0.0)


def _mixed_rows(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
    """Every row treated in one way, as many ways as there are rows, the most telling first."""
    ways = [
        _shifted,
        _two_values,
        _equal_values,
        _sparse,
        _times(8.0),
        _times(1e3),
        _times(1e-2),
        _times(1.0),
    ]
    which = _permutation(len(rows), generator) % len(ways)
    mixed = rows
    for i, way in enumerate(ways):
        mixed = torch.where((which == i)[:, None], way(rows, generator, largest), mixed)
    return mixed


def _permutation(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randperm(count, generator=generator, device=generator.device)


TRANSFORMS: MappingProxyType[str, Transform] = MappingProxyType(
    {
        "×0.0001": _times(1e-4),
        "×0.01": _times(1e-2),
        "×8": _times(8.0),
        "×10000": _times(1e4),
        "shifted": _shifted,
        "large-row": _large_rows,
        "equal-row": _equal_rows,
        "equal-value": _equal_values,
        "two-value": _two_values,
        "sparse": _sparse,
        "extreme": _extreme,
        "mixed-row": _mixed_rows,
    }
)
"""By name, as in "sparse inputs": what is done to the rows of each real-valued input."""

"""Makes inputs numerically difficult without changing their meaning.

Only tensors that look like real-valued data are changed: floating, finite, of both signs and not all
integers. So indices, counts, masks, ±1 labels, probabilities and variances stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch

Rows = torch.Tensor
"""One input as ``(rows, last dimension)``, in float32 or wider."""
Transform = Callable[[Rows, torch.Generator, float], Rows]
"""Takes rows, a source of random numbers, and the largest number of the input's dtype."""

NEAR_DUPLICATE = "a few other values"
"""Name of the change that makes a near-duplicate input: other values of the same kind in a few places, so
that a kernel which recognises inputs by some of their values takes it for an earlier one."""

PLANTED = MappingProxyType(
    {
        "NaN": (math.nan,),
        "+inf": (math.inf,),
        "-inf": (-math.inf,),
        "NaN and ±inf": (math.nan, math.inf, -math.inf),
    }
)
"""The values that are planted, by name; each in a row of its own as far as there are rows."""


def real_valued(value: Any) -> bool:
    """Whether ``value`` is a tensor of ordinary real numbers, unlike indices, masks or labels."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.numel() < 2:
        return False
    signed = (value < 0).any() & (value > 0).any()
    whole = (value == value.round()).all()
    return bool(signed & ~whole & value.isfinite().all())


def stressed(arguments: dict[str, Any], name: str, seed: int) -> dict[str, Any]:
    """Returns the arguments with every real-valued tensor changed; the others are the same objects.

    Args:
        arguments: by parameter name.
        name: a key of ``TRANSFORMS`` or ``PLANTED``, or ``NEAR_DUPLICATE``.
        seed: the judge's secret; the same rows of several inputs are changed alike.
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
    """Writes each value over several elements of a row, with a row of its own for each value.

    Several elements, because a mask or a step may hide a single one.
    """
    planted = rows.clone()
    width = rows.shape[1]
    chosen = _permutation(len(rows), generator).tolist()
    for value, row in zip(values, chosen, strict=False):
        columns = _permutation(width, generator)[: max(1, width // 8)]
        planted[row, columns] = value
    return planted


def _few_others(rows: Rows, generator: torch.Generator) -> Rows:
    # Enough for a sum over all elements to differ, and so few that a sample of places probably stays the
    # same.
    values = rows.flatten().clone()
    count = max(1, min(max(4, len(values) // 256), len(values) // 2))
    places = torch.randint(len(values), (count,), generator=generator, device=rows.device)
    factors = torch.rand(count, generator=generator, device=rows.device) * 2 - 1
    values[places] = values.abs().max() * (factors + factors.sign()) / 2
    return values.reshape(rows.shape)


def _extreme(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
    # As large as possible while the sum of some thousand squares does not overflow. float16 is summed in
    # float32.
    magnitude = largest / 64 if largest < 1e6 else math.sqrt(largest) / 64
    return rows * (magnitude / rows.abs().max())


def _times(factor: float) -> Transform:
    return lambda rows, generator, largest: rows * factor


def _shifted(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
    # Upwards: far below zero most activations consist of rounding errors only.
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
    """Changes each row in one way, with as many ways as there are rows, the most discriminating first."""
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
"""How the rows of each real-valued input are changed, by name, as in "sparse inputs"."""

"""Makes floating inputs numerically difficult.

Tensors that look like real-valued data (floating, finite, of both signs and not all integers) can take
any values. Whether labels, masks, probabilities and variances can is tried, see ``variations``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch

from kernelllm_judge.core.eight_bits import at_least_float32, computable

Rows = torch.Tensor
"""One input as ``(rows, last dimension)``, in float32 or wider."""
Transform = Callable[[Rows, torch.Generator, float], Rows]
"""Takes rows, a source of random numbers, and the largest number of the input's dtype."""

SEEN = 1 << 22
"""Elements of a large tensor that show what kind of values it holds."""

WHOLE_HALVES = "half-integer"
"""Name of the change to multiples of one half: where functions have steps, and rounding has ties."""

MASKED = "masked"
"""Name of the change to rows that are masked, in whole or in part, as models do before a softmax."""

NAN, UP, DOWN = math.nan, math.inf, -math.inf
PLANTED: MappingProxyType[str, tuple[tuple[float, ...], ...]] = MappingProxyType(
    {
        "NaN and ±inf": ((NAN,), (UP,), (DOWN,), (DOWN, DOWN), (UP, DOWN)),
        "whole rows of -inf, and ±inf together": ((DOWN, DOWN), (UP, DOWN)),
    }
)
"""The values that are planted, by name. Each tuple gets a row of its own, as far as there are rows: one
value is written over some elements, two equal ones over the whole row, two others over some elements each."""


ALONE = " in `{name}` alone"
"""What follows the name of planted values where one input gets them, as another's NaN may hide what becomes of its own."""


def planted(kind: str) -> tuple[str, str] | None:
    """Returns the key of ``PLANTED`` for a kind of stress, and the one input that gets the values, empty for all; else None."""
    key, _, name = kind.partition(ALONE.partition("{")[0])
    return (key, name.partition("`")[0]) if key in PLANTED else None


def real_valued(value: Any) -> bool:
    """Whether ``value`` is a tensor of ordinary real numbers, unlike indices, masks or labels."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.numel() < 2:
        return False
    value = computable(value.view(-1)[:SEEN] if value.is_contiguous() else value)
    signed = (value < 0).any() & (value > 0).any()
    whole = (value == value.round()).all()
    return bool(signed & ~whole & value.isfinite().all())


def ends(value: torch.Tensor) -> tuple[Any, Any]:
    """Returns the least and the greatest finite number; zeros where none is finite."""
    value = computable(value)
    low, high = value.aminmax()
    if value.is_floating_point() and not bool(low.isfinite() & high.isfinite()):
        value = value[value.isfinite()]
        if not value.numel():
            return 0, 0
        low, high = value.aminmax()
    return low.item(), high.item()


def changed(value: torch.Tensor, name: str, seed: int) -> torch.Tensor:
    """Returns a floating tensor with its rows changed.

    Args:
        value: any floating tensor.
        name: a key of ``TRANSFORMS``, or what ``planted`` reads.
        seed: the judge's secret; the same rows of several inputs are changed alike.
    """
    generator = torch.Generator(value.device).manual_seed(seed)
    width = value.shape[-1] if value.dim() else 1
    wide = value.reshape(-1, width).to(at_least_float32(value.dtype))
    if plants := planted(name):
        return plant(wide, PLANTED[plants[0]], generator).to(value.dtype).reshape(value.shape)
    largest = torch.finfo(value.dtype).max
    wide = TRANSFORMS[name](wide, generator, largest)
    return wide.clamp(-largest, largest).to(value.dtype).reshape(value.shape)


def plant(rows: Rows, values: tuple[tuple[float, ...], ...], generator: torch.Generator) -> Rows:
    """Writes each tuple of values to a row of its own, see ``PLANTED``.

    One value goes to several elements, because a mask or a step may hide a single one.
    """
    planted = rows.clone()
    width = rows.shape[1]
    chosen = _permutation(len(rows), generator).tolist()
    for row_values, row in zip(values, chosen, strict=False):
        columns = _permutation(width, generator)
        if len(set(row_values)) < len(row_values):
            planted[row] = row_values[0]
            continue
        some = max(1, width // 8)
        for number, value in enumerate(row_values):
            planted[row, columns[number * some : (number + 1) * some]] = value
    return planted


def _sparse(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
    draw = torch.rand(rows.shape, generator=generator, device=rows.device)
    return torch.where(draw < max(1 / 16, 4 / rows.shape[1]), rows, 0.0)


def _filled(value: float, share: float) -> Transform:
    """Returns a transform that gives a share of a row a value, or the least finite number of its dtype if that is larger."""

    def filled(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
        draw = torch.rand(rows.shape, generator=generator, device=rows.device)
        return torch.where(draw < share, max(value, -largest), rows)

    return filled


def _mixture(*ways: str) -> Transform:
    """Returns a transform that changes each row in one way, as many ways as there are rows, in this order."""

    def mixed_rows(rows: Rows, generator: torch.Generator, largest: float) -> Rows:
        which = _permutation(len(rows), generator) % len(ways)
        mixed = rows
        for i, way in enumerate(ways):
            changed_rows = _WAYS[way](rows, generator, largest) if way else rows
            mixed = torch.where((which == i)[:, None], changed_rows, mixed)
        return mixed

    return mixed_rows


def _permutation(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randperm(count, generator=generator, device=generator.device)


TRANSFORMS: MappingProxyType[str, Transform] = MappingProxyType(
    {
        "×0.0001": lambda rows, *_: rows * 1e-4,
        "×0.01": lambda rows, *_: rows * 1e-2,
        "×8": lambda rows, *_: rows * 8.0,
        "×10000": lambda rows, *_: rows * 1e4,
        # Upwards: far below zero most activations consist of rounding errors only.
        "shifted": lambda rows, *_: rows + 100 * rows.std(unbiased=False),
        "equal-row": lambda rows, *_: rows[:1].expand_as(rows),
        "equal-value": lambda rows, *_: rows.abs().amax(1, keepdim=True).expand_as(rows),
        "two-value": lambda rows, *_: torch.where(rows < 0, -1, 1) * rows.abs().amax(1, keepdim=True),
        "sparse": _sparse,
        "negative": lambda rows, *_: -rows.abs() - 1,
        "far negative": lambda rows, *_: rows + -200.0,
        "very negative": lambda rows, *_: rows + -2e4,
        "zero": lambda rows, *_: torch.where(rows < rows.mean(), -0.0, 0.0).to(rows.dtype),
        "subnormal": lambda rows, _, largest: rows * (1e-40 if largest > 1e6 else 1e-6),
        WHOLE_HALVES: lambda rows, *_: (rows * 4).round() / 2,
        "mixed-row": _mixture(
            *("shifted", "two-value", "equal-value", "sparse", "×8", "×1000", "×0.01", "")  # and as it is
        ),
        "low-row": _mixture(
            *("far negative", "negative", "zero", "very negative", "equal-row", "subnormal", "")
        ),
        MASKED: _mixture("least", "partly least", "filled", "partly filled", ""),
    }
)
"""How the rows of each real-valued input are changed, by name, as in "sparse inputs"."""

_WAYS: MappingProxyType[str, Transform] = MappingProxyType(
    {
        **TRANSFORMS,
        "×1000": lambda rows, *_: rows * 1e3,
        "least": _filled(-math.inf, 1.0),
        "partly least": _filled(-math.inf, 0.5),
        "filled": _filled(-1e9, 1.0),
        "partly filled": _filled(-1e9, 0.5),
    }
)
"""What mixtures are made of."""

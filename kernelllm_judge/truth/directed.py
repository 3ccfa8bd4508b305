"""Moves inputs or weights in a direction, so that a decision of a candidate falls the other way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

Way = Literal[
    "×", "+", "rows ×", "values ×", "rows +", "values =", "rows =", "one ×", "negative share", "equal"
]

SHARE = 8
"""One of so many elements gets a value."""


@dataclass(frozen=True)
class Direction:
    """One way to move inputs or weights."""

    way: Way
    amount: float = 1.0
    only: str = ""
    """The only input that is moved, or ``integers`` among buffers; empty: all floats."""
    weights: bool = False
    """Whether it moves weights."""

    def describe(self) -> str:
        """Returns the direction in words, as in ``inputs with rows × up to 1e+06``."""
        up_to = "up to " if self.way in ("rows ×", "values ×", "rows +") else ""
        amount = "" if self.way in ("negative share", "equal") else f" {up_to}{self.amount:.4g}"
        return f"{'weights' if self.weights else self.only or 'inputs'} with {self.way}{amount}"

    def moved(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Returns a moved tensor of the same dtype: floats, or integers that get a value."""
        if not tensor.is_floating_point():
            limits = torch.iinfo(tensor.dtype)
            value = int(min(max(self.amount, limits.min), limits.max))
            return torch.where(_some(tensor, generator), value, tensor).to(tensor.dtype)
        wide = tensor.reshape(-1, tensor.shape[-1] if tensor.dim() else 1).double()
        largest = torch.finfo(tensor.dtype).max
        moved = self._rows(wide, generator).clamp(-largest, largest)
        return moved.to(tensor.dtype).reshape(tensor.shape)

    def _rows(self, rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draw = torch.rand(rows.shape, generator=generator, device=rows.device, dtype=rows.dtype)
        order = torch.argsort(draw[:, :1], 0).argsort(0)
        step = (order + draw[:1, :1]) / len(rows)  # between 0 and 1, for each row
        size, sign = abs(self.amount), math.copysign(1.0, self.amount)
        match self.way:
            case "×":
                return rows * self.amount
            case "+":
                return rows + self.amount
            case "rows ×":
                return rows * size**step * (1.0 if sign > 0 else 1 - 2 * (order % 2))
            case "values ×":
                return rows * size**draw
            case "rows +":
                return rows + self.amount * 10 ** (3 * step - 3)
            case "values =":
                return torch.where(_some(rows, generator), self.amount, rows)
            case "rows =":
                return torch.where(order % 2 == 0, self.amount, rows)
            case "one ×":
                return torch.where(draw == draw.amax(1, keepdim=True), rows * self.amount, rows)
            case "negative share":
                return torch.where(draw < step, -rows.abs(), rows.abs())
        return rows


def _some(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns which elements get a value: some, and at least one."""
    draw = torch.rand(tensor.shape, generator=generator, device=tensor.device)
    return (draw < 1 / SHARE) | (draw == draw.min())

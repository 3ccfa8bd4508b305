"""Losses of large inputs: those that are means or sums over rows are computed in float64 some rows at a time.

In float64 the inputs and the errors of all their elements may be more than the GPU has room for, and on the CPU each run
takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_kernelllm.judge.reference.slices import CLOSE, Arguments, Slicing

FEW = 16
"""Most elements of a loss."""

THIRD = 3
"""The first rows are divided into a third and the rest: of two halves the mean is the same, whether rows count or not."""

Run = Callable[[Arguments], Sequence[Any]]
"""Runs the original in float64 for some rows, and returns the leaves of its outputs."""


@dataclass(frozen=True)
class RowReduction:
    """How the losses of some rows make the loss of all."""

    slicing: Slicing
    mean: bool
    """Whether it is their mean, weighted by the rows; else their sum."""

    def of_all(self, arguments: Arguments, run: Run, exactly: Run) -> list[torch.Tensor] | None:
        """Returns the leaves for all rows; None where it is not so for these arguments, as the first rows show.

        Args:
            arguments: by parameter name.
            run: runs the original in float64 for some rows, as for these arguments perturbed.
            exactly: the same, and nothing is perturbed.
        """
        slices = list(self.slicing.slices())
        try:
            if self._holds(arguments, slices[0], exactly):
                return self._combined([run(self.slicing.cut(arguments, rows)) for rows in slices], slices)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:  # the original may refuse other sizes, in any way
            pass
        return None

    def _holds(self, arguments: Arguments, rows: slice, run: Run) -> bool:
        """Whether the leaves for these rows are made of those for a third of them and for the rest."""
        some = rows.stop // THIRD
        if not some:
            return True
        parts = [slice(0, some), slice(some, rows.stop)]
        together, *apart = (run(self.slicing.cut(arguments, part)) for part in (rows, *parts))
        return _equal(together, self._combined(apart, parts))

    def _combined(
        self, parts: Sequence[Sequence[torch.Tensor]], slices: Sequence[slice]
    ) -> list[torch.Tensor]:
        counts = [rows.stop - rows.start for rows in slices]
        weights = [count / sum(counts) if self.mean else 1.0 for count in counts]
        return [
            torch.stack([leaf * weight for leaf, weight in zip(leaves, weights, strict=True)]).sum(0)
            for leaves in zip(*parts, strict=True)
        ]


def find_reduction(
    arguments: Arguments, losses: Sequence[Any], run: Run, elements: int
) -> RowReduction | None:
    """Finds out whether losses are means or sums over rows, by the losses of some rows at a time.

    Args:
        arguments: by parameter name.
        losses: leaves of the original's outputs for them, in float64.
        run: runs the original in float64 for some rows.
        elements: most elements of a tensor in a slice.

    Returns:
        None where they are neither.
    """
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    if not tensors or not all(map(_is_loss, losses)):
        return None
    widest = max(tensors.values(), key=torch.Tensor.numel)
    rows = len(widest) if widest.dim() else 0
    if rows < 2 or not widest.numel():
        return None
    names = frozenset(name for name, value in tensors.items() if value.dim() and len(value) == rows)
    slicing = Slicing(names, rows, min(rows // 2, max(1, elements * rows // widest.numel())))
    for mean in (True, False):
        reduction = RowReduction(slicing, mean)
        found = reduction.of_all(arguments, run, run)
        if found is not None and _equal(found, losses):
            return reduction
    return None


def _is_loss(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.numel() <= FEW and leaf.is_floating_point()


def _equal(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    return all(
        a.shape == b.shape and torch.allclose(a, b.to(a.device), rtol=CLOSE, atol=0.0, equal_nan=True)
        for a, b in zip(found, expected, strict=True)
    )

"""Losses of large inputs: those that are means or sums over rows are computed in float64 some rows at a time.

In float64 the inputs and the errors of all their elements may be more than the GPU has room for, and on the CPU each run
takes seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from pytest_kernelllm.judge.reference.slices import CLOSE, TF32_CLOSE, Arguments, Slicing

FEW = 16
"""Most elements of a loss."""

Run = Callable[[Arguments], Sequence[Any]]
"""Runs the original in float64 for some rows, and returns the leaves of its outputs."""

Losses = list[torch.Tensor]


@dataclass(frozen=True)
class RowReduction:
    """How the losses of some rows make the loss of all."""

    slicing: Slicing
    mean: bool
    """Whether it is their mean, weighted by the rows; else their sum."""

    def of_all(self, arguments: Arguments, run: Run) -> Losses:
        """Returns the losses of all rows, from those of each slice."""
        slices = list(self.slicing.slices())
        return self._combined([list(run(self.slicing.cut(arguments, rows))) for rows in slices], slices)

    def checked(self, arguments: Arguments, run: Run) -> Losses | None:
        """Returns the same if each two neighbouring slices together give what they give apart, else None.

        So rows that count less than others, as where a loss ignores some, are noticed wherever they are.
        """
        slices = list(self.slicing.slices())
        apart = [list(run(self.slicing.cut(arguments, rows))) for rows in slices]
        for i, (first, second) in enumerate(itertools.pairwise(slices)):
            together = list(run(self.slicing.cut(arguments, slice(first.start, second.stop))))
            if not _equal(together, self._combined(apart[i : i + 2], (first, second))):
                return None
        return self._combined(apart, slices)

    def _combined(self, parts: Sequence[Losses], slices: Sequence[slice]) -> Losses:
        counts = [rows.stop - rows.start for rows in slices]
        weights = [count / sum(counts) if self.mean else 1.0 for count in counts]
        return [
            torch.stack([loss * weight for loss, weight in zip(losses, weights, strict=True)]).sum(0)
            for losses in zip(*parts, strict=True)
        ]


def find_reduction(
    arguments: Arguments, losses: Sequence[Any], run: Callable[[Slicing], Run], elements: int
) -> RowReduction | None:
    """Finds out whether losses are means or sums over rows, by those of some rows at a time.

    Args:
        arguments: by parameter name.
        losses: leaves of the original's outputs for them, in float64.
        run: returns what runs the original in float64 for slices that are cut in this way.
        elements: most elements of a tensor in a slice.

    Returns:
        None where they are neither, or tell nothing: what is 0 or not finite may be both.
    """
    if not all(map(_tells, losses)):
        return None
    for slicing, mean in itertools.product(_slicings(arguments, elements), (True, False)):
        reduction = RowReduction(slicing, mean)
        found = attempted(partial(reduction.checked, arguments, run(slicing)))
        if found is not None and _equal(found, losses):
            return reduction
    return None


def attempted(run: Callable[[], Losses | None]) -> Losses | None:
    """Returns what a run gives; None where it fails: the original may refuse other sizes, in any way, or lack memory."""
    try:
        return run()
    except Exception:
        return None


def _slicings(arguments: Arguments, elements: int) -> Iterator[Slicing]:
    """Yields ways to cut a call: all tensors that have as many rows as the largest, or one of them if the others are small.

    None where one holds integers: if these are numbers of rows, some rows alone would lie outside of the tensor.
    """
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    if not tensors or not all(value.is_floating_point() for value in tensors.values()):
        return
    widest = max(tensors.values(), key=torch.Tensor.numel)
    rows = len(widest) if widest.dim() else 0
    if rows < 2 or not widest.numel():
        return
    step = min(rows // 2, max(1, elements * rows // widest.numel()))
    fitting = [name for name, value in tensors.items() if value.dim() and len(value) == rows]
    for names in dict.fromkeys([tuple(fitting), *((name,) for name in fitting)]):
        if sum(value.numel() for name, value in tensors.items() if name not in names) <= elements:
            yield Slicing(frozenset(names), rows, step)


def _tells(leaf: Any) -> bool:
    if not (isinstance(leaf, torch.Tensor) and leaf.numel() <= FEW and leaf.is_floating_point()):
        return False
    return bool((leaf.isfinite() & (leaf != 0)).all())


def are_about(losses: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> bool:
    """Whether losses in float64 are about those that the original gives, of which some may have been computed in TF32."""
    return _equal([loss.to(own.dtype) for loss, own in zip(losses, given, strict=False)], given, TF32_CLOSE)


def _equal(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], within: float = CLOSE) -> bool:
    if len(found) != len(expected):
        return False
    return all(
        a.shape == b.shape and torch.allclose(a, b.to(a.device), rtol=within, atol=0.0, equal_nan=True)
        for a, b in zip(found, expected, strict=True)
    )

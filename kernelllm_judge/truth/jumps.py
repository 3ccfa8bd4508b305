"""Rows of an output that jump: where rounding decides, as between two keys that a softmax takes for the only one.

Such rows are far off, others in each run and in each implementation, ``torch.compile``'s included. ``docs/explanation/numerics.md``
says how many a candidate may have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth.rows import all_finite, as_rows, chunks, distance, row_scale, unit_of

RUNS = 12
"""Runs of the original, at inputs with other last digits each time, in which rows may jump."""

FAR = 4.0
"""How many times the lower quartile of a row's median errors over the runs one of them must be for a jump…"""

DENSE = 1 / 8
"""…and what share of the largest usual error: most elements of the row move, unlike at steps…"""

NOISE = 1.0
"""…while no element's error is more than this: then nothing is known of the row."""

TIMES = 2.0
"""How many times as many rows may be off as jumped in one run, and two more."""

OTHERS = 1 / 32
"""Share of the rows that may be off although the original shows nothing of it there…"""

NEAR = 8.0
"""…by so many times what is usual at most: of many heads a few jump."""


@dataclass(frozen=True)
class Jumps:
    """The rows of one output that may be far off."""

    rows: torch.Tensor
    """Whether each row may, ``(rows,)``, boolean: it jumped in one of the runs, or moved in float64 as if it could."""
    most: int
    """How many rows may jump at once."""
    farthest: float
    """The largest allowed error, relative to ``|exact|`` and its row's scale."""
    others: int
    """How many of the other rows may be off, too…"""
    near: float
    """…and the largest allowed error there."""

    def allow(self, off: torch.Tensor, errors: torch.Tensor) -> bool:
        """Whether rows may be off: ``off``, ``(rows,)``, boolean, says which are, and ``errors`` by how much."""
        others = off & ~self.rows
        counts = torch.stack([off.sum(), others.sum()]).tolist()
        largest = torch.stack([errors.amax(), (errors * others).nan_to_num(0.0).amax()]).tolist()
        within = largest[0] <= self.farthest and largest[1] <= self.near
        return bool(within and counts[0] <= self.most and counts[1] <= self.others)


def errors_of_rows(
    value: torch.Tensor, exact: torch.Tensor, before: torch.Tensor, policy: Policy
) -> torch.Tensor:
    """Returns in each row of a run the median and the largest error, relative to that run's exact output, and how far this is
    from the exact output ``before``, at other inputs: the median as well. ``(3, rows)``."""
    finite = all_finite(value) and all_finite(exact)
    found = []
    for start, stop in chunks(as_rows(exact), policy):
        got, truth = as_rows(value)[start:stop].double(), as_rows(exact)[start:stop]
        unit = unit_of(truth, row_scale(truth if finite else truth.nan_to_num()), value.dtype, finite)
        errors = distance(got, truth, finite=finite).div_(unit)
        moved = distance(as_rows(before)[start:stop], truth, finite=False).div_(unit)
        found.append(torch.stack([errors.median(1).values, errors.amax(1), moved.median(1).values]))
    return torch.cat(found, 1) if found else exact.new_zeros(3, 0)


def find_jumps(runs: Sequence[torch.Tensor], usual: float, factor: float) -> Jumps | None:
    """Returns which rows may jump; None if none did.

    Args:
        runs: what ``errors_of_rows`` gives for each run.
        usual: above which largest errors are unusual in one run.
        factor: how many times as far off as in the runs a row may be.
    """
    if len(runs) < RUNS:
        return None
    medians, largest, moved = torch.stack([*runs], 1)
    usual = max(usual, factor * float(largest.median()))
    quartile = medians.kthvalue(1 + RUNS // 4, 0).values
    jumped = (medians > FAR * quartile) & (medians > DENSE * usual)
    jumped &= (largest > usual) & (largest <= NOISE)
    jumped &= jumped.double().mean(1, keepdim=True) <= 0.5  # where most rows err more, none is an exception
    most, farthest = torch.stack([jumped.sum(1).amax().double(), (largest * jumped).amax()]).tolist()
    if not most:
        return None
    rows = jumped.any(0) | (moved > usual).any(0)
    others = min(2 + int(most) // 4, int(OTHERS * len(rows)))
    return Jumps(rows, 2 + int(TIMES * most), factor * farthest, others, NEAR * usual)

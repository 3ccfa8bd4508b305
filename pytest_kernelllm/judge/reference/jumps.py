"""Rows of an output that jump: where rounding decides, as between two keys that a softmax takes for the only one.

Such rows are far off, others in each run and in each implementation, ``torch.compile``'s included. ``docs/explanation/numerics.md``
says how many a candidate may have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference.rows import (
    all_finite,
    as_rows,
    chunks,
    distance,
    row_scale,
    unit_of,
)

RUNS = 12
"""Runs of the original, at inputs with other last digits each time, in which rows may jump."""

FAR = 4.0
"""How many times the lower quartile of a row's median errors over the runs one of them must be for a jump…"""

DENSE = 1 / 8
"""…and what share of the largest usual error: most elements of the row move, unlike at steps…"""

NOISE = 1.0
"""…while no element's error is more than this: then nothing is known of the row."""

UNSEEN_SHARE = 1 / 32
"""Share of the rows that may jump in a candidate although they do in none of the runs."""


@dataclass(frozen=True)
class Jumps:
    """The rows of one output that may be far off."""

    seen: torch.Tensor
    """Whether each row jumped in one of the runs, ``(rows,)``, boolean."""
    unseen: int
    """How many of the others may, too."""
    most: int
    """How many rows may in all."""
    farthest: float
    """The largest allowed error, relative to ``|exact|`` and its row's scale."""

    def allow(self, off: torch.Tensor) -> bool:
        """Whether all these rows may jump: ``off``, ``(rows,)``, boolean, says which are far off."""
        unseen, every = torch.stack([(off & ~self.seen).sum(), off.sum()]).tolist()
        return bool(unseen <= self.unseen and every <= self.most)


def errors_of_rows(value: torch.Tensor, exact: torch.Tensor, policy: Policy) -> torch.Tensor:
    """Returns the median and the largest error in each row of a run, ``(2, rows)``, relative to that run's exact output."""
    finite = all_finite(value) and all_finite(exact)
    found = []
    for start, stop in chunks(as_rows(exact), policy):
        got, truth = as_rows(value)[start:stop].double(), as_rows(exact)[start:stop]
        unit = unit_of(truth, row_scale(truth if finite else truth.nan_to_num()), value.dtype, finite)
        errors = distance(got, truth, finite=finite).div_(unit)
        found.append(torch.stack([errors.median(1).values, errors.amax(1)]))
    return torch.cat(found, 1) if found else exact.new_zeros(2, 0)


def find_jumps(runs: Sequence[torch.Tensor], usual: float, factor: float) -> Jumps | None:
    """Returns which rows may jump; None if none did.

    Args:
        runs: each row's median and largest error in each run, see ``errors_of_rows``.
        usual: above which largest errors are unusual.
        factor: how many times as far off as in the runs a row may be, and how many times as many rows.
    """
    if len(runs) < RUNS:
        return None
    medians, largest = torch.stack([*runs], 1)
    quartile = medians.kthvalue(1 + RUNS // 4, 0).values
    jumped = (medians > FAR * quartile) & (medians > DENSE * usual)
    jumped &= (largest > usual) & (largest <= NOISE)
    most, farthest = torch.stack([jumped.sum(1).amax().double(), (largest * jumped).amax()]).tolist()
    if not most:
        return None
    unseen = min(2 + int(most) // 4, int(UNSEEN_SHARE * medians.shape[1]))
    return Jumps(jumped.any(0), unseen, 2 + int(factor * most), factor * farthest)

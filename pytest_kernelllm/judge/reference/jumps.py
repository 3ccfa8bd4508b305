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

RUNS = 6
"""Runs of the original, at inputs with other last digits each time, in which rows may jump."""

FAR = 8.0
"""How many times a row's median error over the runs one of them must be to be a jump…"""

NOISE = 1.0
"""…but no more than this: then nothing is known of the row."""

UNSEEN_SHARE = 1 / 32
"""Share of the rows that may jump in a candidate although they do in none of the runs."""


@dataclass(frozen=True)
class Jumps:
    """The rows of one output that may be far off."""

    seen: torch.Tensor
    """Whether each row jumped in one of the runs, ``(rows,)``, boolean."""
    unseen: int
    """How many of the others may, too."""
    farthest: float
    """The largest allowed error, relative to ``|exact|`` and its row's scale."""

    def allow(self, off: torch.Tensor) -> bool:
        """Whether all these rows may jump: ``off``, ``(rows,)``, boolean, says which are far off."""
        return bool((off & ~self.seen).sum() <= self.unseen)


def errors_of_rows(value: torch.Tensor, exact: torch.Tensor, policy: Policy) -> torch.Tensor:
    """Returns the largest error in each row of a run, ``(rows,)``, float64, relative to that run's exact output."""
    finite = all_finite(value) and all_finite(exact)
    found = []
    for start, stop in chunks(as_rows(exact), policy):
        got, truth = as_rows(value)[start:stop].double(), as_rows(exact)[start:stop]
        unit = unit_of(truth, row_scale(truth if finite else truth.nan_to_num()), value.dtype, finite)
        found.append(distance(got, truth, finite=finite).div_(unit).amax(1))
    return torch.cat(found) if found else exact.new_zeros(0)


def find_jumps(runs: Sequence[torch.Tensor], usual: float, factor: float) -> Jumps | None:
    """Returns which rows may jump; None if none did.

    Args:
        runs: each row's largest error in each run, see ``errors_of_rows``.
        usual: above which errors are unusual.
        factor: how many times as far off as in the runs a row may be.
    """
    if len(runs) < RUNS:
        return None
    errors = torch.stack([*runs])
    middle = errors.median(0).values
    jumped = (errors > usual) & (errors > FAR * middle) & (errors <= NOISE)
    most, farthest = torch.stack([jumped.sum(1).amax().double(), (errors * jumped).amax()]).tolist()
    if not most:
        return None
    unseen = min(2 + int(most) // 4, int(UNSEEN_SHARE * errors.shape[1]))
    return Jumps(jumped.any(0), unseen, factor * farthest)

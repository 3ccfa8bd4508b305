"""Measures outputs row by row, in chunks of bounded size.

Few values are read in between: each read waits for the GPU, which several processes share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch

from kernelllm_judge.policy import Policy

CHUNK = 1 << 24
"""Elements that are compared at once where no policy says how many."""

ROW = 32
"""Fewest elements of a row, whose errors are taken together; shorter last dimensions are merged with those before them."""


ALIKE = 0.999
"""Share of a row's largest magnitude from which on elements are as large, see ``row_scale``."""

ALONE = 8
"""An output of fewer elements is no row: each element, such as one of several losses, has a scale of its own."""


def group_rms(
    truth: torch.Tensor,
    value: torch.Tensor,
    dim: int,
    peak: float | torch.Tensor,
    policy: Policy,
    *,
    finite: bool = False,
) -> torch.Tensor:
    """Returns the root mean square of the differences in each group, relative to ``peak``.

    ``finite`` says that all elements of both are known to be.
    """
    wide, other = (x.reshape(-1, x.shape[-1]) for x in (truth, value))
    return _in_groups(
        (
            distance(other[start:stop].double(), wide[start:stop], finite=finite).div_(peak)
            for start, stop in chunks(wide, policy)
        ),
        dim,
        wide.shape[dim],
    )


def group_sizes(
    value: torch.Tensor, dim: int, peak: float | torch.Tensor, policy: Policy, *, finite: bool = False
) -> torch.Tensor:
    """Returns the root mean square of the elements in each group, see ``group_rms``."""
    wide = value.reshape(-1, value.shape[-1])
    parts = (wide[start:stop].double() / peak for start, stop in chunks(wide, policy))
    return _in_groups(
        (part if finite else part.nan_to_num_(0.0, 0.0, 0.0) for part in parts), dim, wide.shape[dim]
    )


def _in_groups(parts: Iterable[torch.Tensor], dim: int, size: int) -> torch.Tensor:
    """Returns root mean squares over groups of ``size`` elements along ``dim``; rows come in parts."""
    norms = [torch.linalg.vector_norm(part, dim=dim) for part in parts]
    whole: torch.Tensor = torch.cat(norms) if dim else torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return whole / math.sqrt(size)


def only_finite(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor with zeros where it is not finite."""
    return tensor if all_finite(tensor) else tensor.nan_to_num(0.0, 0.0, 0.0)


def largest(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the largest magnitude of a finite element, or 0."""
    return tensor.abs().nan_to_num_(0.0, 0.0, 0.0).amax()


def rms(values: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns root mean squares along ``dim``, which is kept; squares do not overflow."""
    least = torch.finfo(values.dtype).tiny
    peak: torch.Tensor = torch.linalg.vector_norm(values, math.inf, dim, keepdim=True).clamp_min(least)
    norm: torch.Tensor = torch.linalg.vector_norm(values / peak, dim=dim, keepdim=True)
    return peak * norm / math.sqrt(values.shape[dim])


def row_scale(rows: torch.Tensor, alike: float = ALIKE) -> torch.Tensor:
    """Returns the root mean square of each row, in which elements as large as the largest count as at most 1.

    So a fill value such as -1e9 does not hide the other elements. Where all others are tails of a
    saturated function, they are compared on a scale of 1, because they were computed from numbers about
    1. Elements of at least the share ``alike`` of the largest are as large; a smaller share gives no larger scale.
    """
    size = rows.abs()
    rest = torch.where(size < alike * size.amax(1, keepdim=True), size, 0.0)
    return torch.minimum(rms(size, 1), rms(rest, 1).clamp_min(1.0))


def distance(value: torch.Tensor, truth: torch.Tensor, *, finite: bool = False) -> torch.Tensor:
    """Returns the absolute difference where both are finite; 0 elsewhere. ``finite`` says that all are known to be."""
    off = (value - truth).abs_()
    return off if finite else off.nan_to_num_(0.0, 0.0, 0.0)


def all_finite(tensor: torch.Tensor) -> bool:
    """Whether all elements are finite, and their sum.

    It is not if one of them is not, and is faster than testing each.
    """
    return bool(finite_sum(tensor))


def finite_sum(tensor: torch.Tensor) -> torch.Tensor:
    """Returns whether the sum of a tensor's elements is finite."""
    return tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32)).isfinite()


def unit_of(truth: torch.Tensor, row: torch.Tensor, dtype: torch.dtype, finite: bool) -> torch.Tensor:
    """Returns what errors are relative to: an element's magnitude plus its row's, or a tiny number."""
    size = truth.abs()
    if not finite:
        size = size.nan_to_num_(0.0, 0.0, 0.0)
    return size.add_(row).clamp_min_(least_unit(dtype))


def least_unit(dtype: torch.dtype) -> float:
    """Returns what errors are relative to at least."""
    tiny = torch.finfo(dtype).tiny
    # GPUs and fast exponentials flush subnormal float32 to zero. float16's subnormals are ordinary numbers.
    return tiny if dtype == torch.float16 else tiny * 2.0**26


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor as ``(rows, width)``, with at least ``ROW`` elements a row if it has so many, or one if it has few."""
    if tensor.numel() < ALONE:
        return tensor.reshape(-1, 1)
    width, dims = 1, list(tensor.shape)
    while dims and width < ROW:
        width *= dims.pop()
    return tensor.reshape(math.prod(dims), width)


def chunks(matrix: torch.Tensor, policy: Policy) -> Iterator[tuple[int, int]]:
    """Yields ranges of a matrix's rows of bounded size, so that temporary tensors stay small."""
    rows, width = matrix.shape
    step = max(1, policy.chunk_elements // max(width, 1))
    for start in range(0, rows if width else 0, step):
        yield start, min(start + step, rows)

"""Cuts large calls into slices along the first dimension, where the original treats each row by itself.

Each slice is computed in float64 and compared alone, so that a comparison needs memory for one slice
instead of several float64 copies of everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm_judge.core import accelerator
from kernelllm_judge.truth.agreement import every
from kernelllm_judge.truth.honest import allowed_operations
from kernelllm_judge.truth.rows import CHUNK, largest

Arguments = dict[str, Any]
Run = Callable[[Arguments], Sequence[Any]]
"""Returns the leaves of a call's outputs."""

CLOSE = 1e-9
"""Relative difference between float64 results that are computed in slices of different sizes."""

TF32_CLOSE = 2.0**-8
"""Relative difference between results of which a library computed one in TF32: of 10 bits, the last ones are rounding."""


@dataclass(frozen=True)
class Slicing:
    """How a call is cut: row ``i`` of every output depends on row ``i`` of some arguments, and on all of the others."""

    names: frozenset[str]
    """The arguments whose rows belong to rows of the outputs."""
    rows: int
    """Size of the first dimension of these arguments and of every output."""
    step: int
    """Rows of a slice."""

    def cut(self, arguments: Arguments, rows: slice) -> Arguments:
        """Returns the arguments of a call for some of the rows: views."""
        return {k: v[rows] if k in self.names else v for k, v in arguments.items()}

    def slices(self) -> Iterator[slice]:
        """Yields all slices."""
        for first in range(0, self.rows, self.step):
            yield slice(first, min(first + self.step, self.rows))


def find_slicing(
    arguments: Arguments, outputs: Sequence[torch.Tensor], run: Run, exact: Run, elements: int
) -> Slicing | None:
    """Finds out whether rows are independent, by runs on some rows alone.

    In float64 a few rows give the same result with and without their neighbours, at the beginning and in the
    middle; every slice gives what the whole call gave for its rows; and random numbers give no other answer,
    because the zeros of a triangular matrix, for example, may hide that a row's place matters.

    Args:
        outputs: leaves of the original's outputs for them.
        elements: most elements of a tensor in a slice.

    Returns:
        None where rows are not independent, or there is only one.
    """
    counts = {leaf.shape[0] if leaf.dim() else 0 for leaf in outputs}
    if len(counts) != 1 or (rows := counts.pop()) < 2:
        return None
    fitting = [k for k, v in arguments.items() if isinstance(v, torch.Tensor) and v.dim() and len(v) == rows]
    for names in dict.fromkeys([tuple(fitting), *((name,) for name in fitting)]):
        widest = max(t.numel() // rows for t in (*outputs, *(arguments[name] for name in names)))
        slicing = Slicing(frozenset(names), rows, max(1, min(elements // max(widest, 1), rows // 2)))
        if (
            names
            and _independent(slicing, arguments, exact)
            and _same(slicing, arguments, outputs, run)
            and _independent_for_others(slicing, arguments, exact)
        ):
            return slicing
    return None


def _independent(slicing: Slicing, arguments: Arguments, exact: Run) -> bool:
    few = max(1, min(slicing.step // 2, slicing.rows // 2))
    middle = max(few, slicing.rows // 2)
    for first, alone in ((0, 0), (middle - few, middle)):
        both = slice(first, first + 2 * few)
        one = slice(alone, alone + few)
        try:
            together, apart = (exact(slicing.cut(arguments, rows)) for rows in (both, one))
        except torch.OutOfMemoryError:
            raise  # calls that are not cut take even more
        except Exception:  # the original may refuse other sizes, in any way
            return False
        middle_rows = slice(alone - first, alone - first + few)
        pairs = zip(together, apart, strict=True)
        if not every(_close(part, whole[middle_rows], CLOSE) for whole, part in pairs):
            return False
    return True


def in_slices(
    slices: Iterable[slice], outputs: Sequence[torch.Tensor], run: Callable[[slice], Sequence[Any]]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields what each slice gives, and what the whole call gave for its rows, leaf by leaf.

    Args:
        slices: ranges of rows.
        outputs: leaves of the whole call.
        run: runs the original for some rows.
    """
    for rows in slices:
        for leaf, whole in zip(run(rows), outputs, strict=True):
            yield leaf, whole[rows]


def equal_to_half(leaf: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Returns whether two outputs are of the same form, and equal in about half of their digits: fewer where one may be in TF32."""
    within = torch.finfo(leaf.dtype).eps ** 0.5 if leaf.is_floating_point() else 0.0
    if accelerator.is_gpu(leaf.device) and leaf.dtype == torch.float32 and allowed_operations():
        within = TF32_CLOSE
    return _close(leaf, expected, within)


def _independent_for_others(slicing: Slicing, arguments: Arguments, exact: Run) -> bool:
    few = max(1, min(slicing.step // 2, slicing.rows // 2))
    middle = max(few, slicing.rows // 2)
    some = {
        name: _random(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in slicing.cut(arguments, slice(middle - few, middle + few)).items()
    }
    try:
        together, apart = exact(some), exact(slicing.cut(some, slice(few, None)))
    except torch.OutOfMemoryError:
        raise
    except Exception:  # the original refuses such numbers, so no probe has them
        return True
    return every(_close(part, whole[few:], CLOSE) for whole, part in zip(together, apart, strict=True))


def _random(tensor: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator(tensor.device).manual_seed(0)
    return torch.empty_like(tensor).normal_(generator=generator)


def _same(slicing: Slicing, arguments: Arguments, outputs: Sequence[torch.Tensor], run: Run) -> bool:
    try:
        pairs = in_slices(slicing.slices(), outputs, lambda rows: run(slicing.cut(arguments, rows)))
        return every(equal_to_half(leaf, whole) for leaf, whole in pairs)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # as above
        return False


def _close(value: torch.Tensor, expected: torch.Tensor, within: float) -> torch.Tensor:
    """Returns whether two outputs are of the same form, and as near to each other as that."""
    if (value.shape, value.dtype) != (expected.shape, expected.dtype):
        return torch.zeros((), dtype=torch.bool, device=value.device)
    if not (value.is_floating_point() and value.numel()):
        return (value == expected).all()
    scale = within * largest(expected)
    pairs = zip(value.reshape(-1).split(CHUNK), expected.reshape(-1).split(CHUNK), strict=True)
    return torch.stack([_all_close(a, b, within, scale) for a, b in pairs]).all()


def _all_close(
    value: torch.Tensor, expected: torch.Tensor, within: float, scale: torch.Tensor
) -> torch.Tensor:
    """Returns what ``torch.allclose`` does, as a tensor; ``scale`` is the absolute tolerance."""
    error = (value - expected).abs_()
    close = (error <= scale + within * expected.abs()) & error.isfinite()
    return (close | (value == expected) | (value.isnan() & expected.isnan())).all()

"""Runs originals in float64: on the GPU if it has room, some rows of a loss at a time where it has little, else on the CPU.

A loss may be the mean or the sum over rows. In float64 large inputs and the errors of all their elements may be more than the
GPU has room for, and on the CPU each run takes seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from kernelllm_judge.truth import calls
from kernelllm_judge.truth.slices import CLOSE, Arguments, Run, Slicing, equal_to_half

FEW = 16
"""Most elements of a loss."""

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
        losses: leaves of the original's outputs for them, in float64, which ``tell``.
        run: returns what runs the original in float64 for slices that are cut in this way.
        elements: most elements of a tensor in a slice.

    Returns:
        None where they are neither.
    """
    for slicing, mean in itertools.product(_slicings(arguments, elements), (True, False)):
        reduction = RowReduction(slicing, mean)
        found = attempted(partial(_checked, reduction, arguments, run))
        if found is not None and _equal(found, losses):
            return reduction
    return None


def _checked(reduction: RowReduction, arguments: Arguments, run: Callable[[Slicing], Run]) -> Losses | None:
    return reduction.checked(arguments, run(reduction.slicing))


def attempted(run: Callable[[], Losses | None]) -> Losses | None:
    """Returns what a run gives; None where it fails: the original may refuse other sizes, in any way, or lack memory."""
    try:
        return run()
    except Exception:
        return None


def _slicings(arguments: Arguments, elements: int) -> Iterator[Slicing]:
    """Yields ways to cut a call: all tensors that have as many rows as the largest, or one of them if the others are small.

    Nothing unless all are of floating point: integers may be numbers of rows, which would lie outside of a slice. Nor where
    a single row is large.
    """
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    if not tensors or not all(value.is_floating_point() for value in tensors.values()):
        return
    widest = max(tensors.values(), key=torch.Tensor.numel)
    rows = len(widest) if widest.dim() else 0
    if rows < 2 or not 0 < widest.numel() <= elements * rows:
        return
    step = min(rows // 2, elements * rows // widest.numel())
    fitting = [name for name, value in tensors.items() if value.dim() and len(value) == rows]
    for names in dict.fromkeys([tuple(fitting), *((name,) for name in fitting)]):
        if sum(value.numel() for name, value in tensors.items() if name not in names) <= elements:
            yield Slicing(frozenset(names), rows, step)


def tell(losses: Sequence[Any]) -> bool:
    """Whether outputs are losses that tell a mean from a sum: what is 0 or not finite may be both."""
    return all(map(_is_loss, losses)) and all(bool((loss.isfinite() & (loss != 0)).all()) for loss in losses)


def are_about(losses: Sequence[torch.Tensor], given: Sequence[Any]) -> bool:
    """Whether losses in float64 are equal to those that the original gives in about half of their digits."""
    return len(losses) == len(given) and all(
        _is_loss(own) and bool(equal_to_half(own, loss.to(own)))
        for loss, own in zip(losses, given, strict=True)
    )


def _is_loss(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.numel() <= FEW and leaf.is_floating_point()


def _equal(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    if len(found) != len(expected):
        return False
    return all(
        a.shape == b.shape and torch.allclose(a, b.to(a.device), rtol=CLOSE, atol=0.0, equal_nan=True)
        for a, b in zip(found, expected, strict=True)
    )


class Float64Runs:
    """Runs one target's modules in float64. Not thread-safe."""

    def __init__(self, device: str, elements: int, lacks_room: Callable[[Arguments], bool]) -> None:
        """Prepares; nothing runs until it is asked for.

        Args:
            device: where the original runs.
            elements: most elements of a tensor of which some rows are computed at a time.
            lacks_room: whether large arguments lie in the host's memory, and the device has no room for them in float64.
        """
        self._device = device
        self._elements = elements
        self._lacks_room = lacks_room
        self._reductions: dict[Any, RowReduction | None] = {}
        """By kind of call for which there is no room: None where it is no loss over rows."""

    def run(
        self,
        module: nn.Module,
        arguments: Arguments,
        change: calls.Change = calls.to_float64,
        about: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Runs a float64 module, see ``calls.run_in_float64``. Returns leaves where the original runs.

        Without room runs are made on the CPU. The first one with unchanged arguments shows whether others may be made some
        rows at a time, and each of these shows whether that holds for its arguments. ``about`` are the original's own
        outputs, if known: where losses are far from them, all runs of this kind are made on the CPU from then on.
        """
        if not self._lacks_room(arguments):
            return calls.run_in_float64(module, arguments, lambda tensor: change(tensor.to(self._device)))
        losses = self._by_rows(module, arguments, change)
        if losses is not None:
            if about is None or are_about(losses, about):
                return losses
            self._reductions[_kind(module, arguments)] = None
        there = calls.mapped(arguments, torch.Tensor.cpu)
        leaves = calls.run_in_float64(calls.moved(module, "cpu"), there, change)
        if change is calls.to_float64:
            self._learn(module, arguments, leaves)
        return [leaf.to(self._device) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def _by_rows(self, module: nn.Module, arguments: Arguments, change: calls.Change) -> Losses | None:
        """Returns the losses from those of some rows at a time; None where they are not known to be made of them."""
        reduction = self._reductions.get(_kind(module, arguments))
        if reduction is None:
            return None
        run = partial(self._run_of_rows, module, arguments)

        def losses_of_rows() -> Losses | None:
            losses = reduction.checked(arguments, run(calls.to_float64, reduction.slicing))
            if losses is None or change is calls.to_float64:
                return losses
            return reduction.of_all(arguments, run(change, reduction.slicing))

        return attempted(losses_of_rows)

    def _learn(self, module: nn.Module, arguments: Arguments, leaves: list[Any]) -> None:
        """Finds out by a run on the CPU how others of this kind may be made."""
        kind = _kind(module, arguments)
        if kind in self._reductions or isinstance(module, calls.Rows | calls.Updating) or not tell(leaves):
            return
        run = partial(self._run_of_rows, module, arguments, calls.to_float64)
        self._reductions[kind] = find_reduction(arguments, leaves, run, self._elements)

    def _run_of_rows(
        self, module: nn.Module, arguments: Arguments, change: calls.Change, slicing: Slicing
    ) -> Run:
        """Returns what runs a module for a slice of arguments. Those that are not cut are changed once for all slices."""
        whole = {name: value for name, value in arguments.items() if name not in slicing.names}
        same = calls.mapped(whole, lambda tensor: change(tensor.to(self._device)))

        def run(some: Arguments) -> list[Any]:
            rows = {name: value for name, value in some.items() if name in slicing.names}
            cut = calls.mapped(rows, lambda tensor: change(tensor.to(self._device)))
            # What is not cut is another tensor for each slice, because the original may change it in place.
            return calls.run_in_float64(module, cut | calls.mapped(same, torch.clone), lambda tensor: tensor)

        return run


def _kind(module: nn.Module, arguments: Arguments) -> Any:
    """Returns what calls have in common that may be computed in the same way."""
    return type(module), tuple((k, v.shape) for k, v in arguments.items() if isinstance(v, torch.Tensor))

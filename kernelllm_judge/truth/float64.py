"""Runs originals in float64: on the GPU if it has room, some rows of a loss at a time where it has little, else on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from kernelllm_judge.truth import calls
from kernelllm_judge.truth.additive import (
    Losses,
    RowReduction,
    are_about,
    attempted,
    find_reduction,
    tell,
)
from kernelllm_judge.truth.slices import Arguments, Run, Slicing


class Float64Runs:
    """Runs one target's modules in float64. Not thread-safe."""

    def __init__(self, device: str, elements: int, lacks_room: Callable[[Arguments], bool]) -> None:
        """Runs nothing yet.

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

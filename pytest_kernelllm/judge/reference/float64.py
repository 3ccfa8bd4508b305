"""Runs originals in float64: on the GPU if it has room, some rows of a loss at a time where it has little, else on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from pytest_kernelllm.judge.reference import calls
from pytest_kernelllm.judge.reference.additive import RowReduction, find_reduction

Arguments = dict[str, Any]


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
        self, module: nn.Module, arguments: Arguments, change: calls.Change = calls.to_float64
    ) -> list[Any]:
        """Runs a float64 module, see ``calls.run_in_float64``. Returns leaves where the original runs.

        Without room the first such run is made on the CPU; it shows whether others may be made some rows at a time.
        """
        run = self._on_device(module, change)
        if not self._lacks_room(arguments):
            return run(arguments)
        exactly = self._on_device(module, calls.to_float64)
        kind = _kind(module, arguments)
        if reduction := self._reductions.get(kind):
            losses = reduction.of_all(arguments, run, exactly)
            if losses is not None:
                return losses
            self._reductions[kind] = None
        there = calls.mapped(arguments, torch.Tensor.cpu)
        leaves = calls.run_in_float64(calls.moved(module, "cpu"), there, change)
        if change is calls.to_float64 and kind not in self._reductions:
            self._reductions[kind] = find_reduction(arguments, leaves, exactly, self._elements)
        return [leaf.to(self._device) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def _on_device(self, module: nn.Module, change: calls.Change) -> Callable[[Arguments], list[Any]]:
        return lambda some: calls.run_in_float64(module, some, lambda tensor: change(tensor.to(self._device)))


def _kind(module: nn.Module, arguments: Arguments) -> Any:
    """Returns what calls have in common that may be computed in the same way."""
    shapes = ((name, v.shape) for name, v in arguments.items() if isinstance(v, torch.Tensor))
    return type(module), tuple(shapes)

"""Finds the axes of a module's inputs whose sizes may vary, by trying smaller ones without data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from pytest_kernelllm.beside.ranking.trace import Shape


@dataclass(frozen=True)
class Axes:
    """The named dimensions of one call."""

    sizes: Mapping[str, int]
    """The size of each, as recorded."""
    places: Mapping[tuple[str, int], str]
    """The dimension of each axis that has one, by argument and axis."""

    def shape(self, argument: str, value: Shape) -> str:
        """Returns the sizes of an argument as source, without brackets."""
        return ", ".join(
            self.places.get((argument, axis), str(size)) for axis, size in enumerate(value.sizes)
        )


def free_axes(module: nn.Module, inputs: Mapping[str, Any]) -> Axes:
    """Returns the axes whose sizes may vary; axes of one place and size in several inputs vary together.

    Tried are the first axis, and of inputs with three or more axes the second. Nothing varies if the module does not run
    without data.
    """
    found: dict[str, int] = {}
    places: dict[tuple[str, int], str] = {}
    if not _runs(module, inputs):
        return Axes({}, {})
    shapes = {name: value for name, value in inputs.items() if isinstance(value, Shape)}
    most = max((len(value.sizes) for value in shapes.values()), default=0)
    for axis, name in enumerate(("batch", "seq") if most >= 3 else ("rows",)):
        size = max((v.sizes[axis] for v in shapes.values() if len(v.sizes) > axis + (most >= 3)), default=0)
        if size < 2:
            continue
        tied = [argument for argument, v in shapes.items() if len(v.sizes) > axis and v.sizes[axis] == size]
        smaller = {argument: _resized(shapes[argument], axis, size - 1) for argument in tied}
        if _runs(module, {**inputs, **smaller}):
            found[name] = size
            places |= {(argument, axis): name for argument in tied}
    return Axes(found, places)


def _resized(value: Shape, axis: int, size: int) -> Shape:
    sizes = (*value.sizes[:axis], size, *value.sizes[axis + 1 :])
    return replace(value, sizes=sizes)


def _runs(module: nn.Module, inputs: Mapping[str, Any]) -> bool:
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    meta = {name: tensor.detach().to("meta") for name, tensor in held.items()}
    arguments = {
        name: torch.empty(value.sizes, dtype=value.dtype, device="meta")
        if isinstance(value, Shape)
        else value
        for name, value in inputs.items()
    }
    try:
        with torch.no_grad(), torch.device("meta"):
            functional_call(module, meta, (), arguments)
    except (Exception, SystemExit):  # much of what runs on data does not run without
        return False
    return True

"""Writes a region as the source of a module. Equal regions have equal text, wherever they are."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from kernelllm_runtime.regions.cut import Region
from kernelllm_runtime.regions.expression import call_of
from kernelllm_runtime.regions.kinds import value_of

MOST = 64
"""Tensors that an operation of torch may take."""


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    order: tuple[int, ...]
    """The dimensions from the slowest to the fastest in memory, without gaps between elements."""

    @property
    def stored(self) -> tuple[int, ...]:
        """The sizes in the order of memory, in which a kernel gets the tensor."""
        return tuple(self.shape[dim] for dim in self.order)

    @property
    def back(self) -> tuple[int, ...]:
        """The order that makes the tensor of the stored one."""
        return tuple(self.order.index(dim) for dim in range(len(self.order)))

    @property
    def permuted(self) -> bool:
        """Whether memory has another order than the dimensions."""
        return self.order != tuple(range(len(self.order)))

    @property
    def bytes(self) -> int:
        """Bytes in memory."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


@dataclass(frozen=True)
class Written:
    """A region as text."""

    name: str
    """``AddRsqrtMul_1f3a09c2``"""
    forward: str
    """The source of ``forward``."""
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]

    @property
    def key(self) -> str:
        """What names equal regions."""
        return self.name.rpartition("_")[2]


def written(region: Region) -> Written | None:
    """Returns a region as text; None if a tensor that it reads or gives has gaps between its elements, or if it reads too many."""
    if len(region.inputs) > MOST:
        return None
    inputs = [layout_of(value_of(node)) for node in region.inputs]
    outputs = [layout_of(value_of(node)) for node in region.outputs]
    if None in inputs or None in outputs:
        return None
    layouts = tuple(each for each in inputs if each)
    given = tuple(each for each in outputs if each)
    forward = "\n".join(_lines(region, layouts, given))
    shown = [f"{each.dtype} {each.shape} {each.order}" for each in layouts]
    digest = hashlib.sha256("\n".join((forward, *shown)).encode()).hexdigest()[:12]
    return Written(f"{_title(region)}_{digest}", forward, layouts, given)


def layout_of(tensor: torch.Tensor) -> Layout | None:
    """Returns how a tensor lies in memory; None if elements have gaps between them, or share memory."""
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
    # Dimensions of size 1 may have any stride; they stay where they are.
    order = tuple(range(len(shape)))
    if not tensor.is_contiguous():
        order = tuple(sorted(order, key=lambda dim: (-strides[dim], dim)))
    step = 1
    for dim in reversed(order):
        if shape[dim] > 1 and strides[dim] != step:
            return None
        step *= shape[dim]
    return Layout(tensor.dtype, shape, order)


def _lines(region: Region, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]) -> Iterator[str]:
    names: dict[Node, str] = {node: f"x{number}" for number, node in enumerate(region.inputs)}
    yield f"def forward(self, {', '.join(names.values())}):"
    for node, layout in zip(region.inputs, inputs, strict=True):
        if layout.permuted:
            yield f"    {names[node]} = {names[node]}.permute{layout.back}"
    for number, node in enumerate(region.nodes):
        text = call_of(node, names, "x0.device")
        names[node] = f"t{number}"
        yield f"    {names[node]} = {text}"
    given = (
        _given(names[node], out, node is region.call)
        for node, out in zip(region.outputs, outputs, strict=True)
    )
    yield f"    return {', '.join(given)}"


def _given(name: str, layout: Layout, called: bool) -> str:
    """The expression for an output. Libraries differ in how they lay out what they compute, so that is laid out here."""
    if not called:
        return name
    return (
        f"{name}.permute{layout.order}.contiguous().permute{layout.back}"
        if layout.permuted
        else f"{name}.contiguous()"
    )


def _title(region: Region) -> str:
    """Up to three operations that say most, in the order in which they run."""
    names = [_word(node) for node in region.nodes]
    dull = {
        "Getitem",
        "View",
        "Reshape",
        "To",
        "Float",
        "Transpose",
        "Permute",
        "Contiguous",
        "Unsqueeze",
        "Expand",
    }
    dull |= {
        "Chunk",
        "Split",
        "Flatten",
        "Squeeze",
        "Dropout",
        "TypeAs",
        "Add",
        "Mul",
        "Sub",
        "Size",
        "Getattr",
    }
    telling = list(dict.fromkeys(name for name in names if name not in dull))
    rest = [name for name in dict.fromkeys(names) if name in ("Add", "Mul", "Sub")]
    return "".join((telling + rest)[:3]) or "Copy"


def _word(node: Node) -> str:
    target: Any = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "call")
    return "".join(part.capitalize() for part in re.split(r"[^a-zA-Z0-9]+", name) if part)

"""Captures the graphs of a model's example, and gathers equal regions of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm_runtime.regions.cut import Cut, Region, cut
from kernelllm_runtime.regions.kinds import value_of
from kernelllm_runtime.regions.text import Written, layout_of, written
from pytest_kernelllm.beside.optimize.report import path_pattern
from pytest_kernelllm.beside.whole.drawn import Band, Watching, positive_inputs

WORTH = 0.01
"""Share of the bytes that all regions move, below which a region is left alone."""


@dataclass(frozen=True)
class Found:
    """A region, with all places that are equal to it."""

    text: Written
    places: tuple[str, ...]
    """Modules that it is part of, with ``*`` for numbers."""
    times: int
    alone: int
    """Bytes that its operations move in one place, each alone."""
    positive: frozenset[int] = frozenset()
    """Numbers of the inputs that are drawn positive, because of others it gives NaN or fails."""
    bands: Mapping[int, Band] = field(default_factory=dict)
    """What is true of inputs of booleans, by their numbers, where a mask of the example is a band."""

    @property
    def moved(self) -> int:
        """Bytes that its operations move in all places, each alone."""
        return self.times * self.alone


@dataclass(frozen=True)
class Captured:
    """What the graphs of an example show."""

    regions: tuple[Found, ...]
    """Those that are worth a kernel, the most costly one first."""
    functions: frozenset[str]
    """Names of all functions that are called."""
    graphs: int = 1
    """How many graphs ``torch.compile`` makes of the example."""
    breaks: tuple[str, ...] = ()
    """Why it breaks graphs off."""

    @property
    def note(self) -> str:
        """What was not captured, as a sentence; empty if all was."""
        if not self.breaks and self.graphs:
            return ""
        why = f": {'; '.join(self.breaks[:3])}" if self.breaks else ""
        what = "breaks the model's graph off, and regions end there"
        if not self.graphs:
            what = "captures nothing of the model, so it has no regions"
        return f"torch.compile {what}{why}. TORCH_LOGS=graph_breaks shows where."

    def calls(self, part: str) -> bool:
        """Whether a function with this part of a name is called."""
        return any(part in name for name in self.functions)


def capture(run: Callable[[Any], object]) -> Captured:
    """Returns the regions of a model that are worth a kernel.

    Args:
        run: runs the example, with the model compiled by the backend that it is given.
    """
    graphs: list[tuple[Region, Written]] = []
    functions: set[str] = set()
    watched: list[Watching] = []
    number = 0

    def backend(module: GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        nonlocal number
        number += 1
        functions.update(str(getattr(node.target, "__name__", node.target)) for node in module.graph.nodes)
        if torch.is_grad_enabled():
            return module.forward
        found = list(_texts(cut(module)))
        graphs.extend(found)
        watched.append(Watching(module, {node for each in found for _, node in _masks(*each)}))
        return watched[-1].run

    from torch._dynamo.utils import counters  # heavy

    before = Counter(counters["graph_break"])
    run(backend)
    breaks = Counter(counters["graph_break"]) - before
    reasons = dict.fromkeys(reason.partition("\n")[0].rstrip(".") for reason in breaks)
    bands = {node: band for each in watched for node, band in each.bands.items() if band is not None}
    return Captured(gathered(graphs, bands), frozenset(functions), number, tuple(reasons))


def _texts(found: Cut) -> Iterable[tuple[Region, Written]]:
    for region in found.regions:
        text = written(region)
        if text is not None and not all(layout.dtype is torch.bool for layout in text.inputs):
            yield region, text


def _masks(region: Region, text: Written) -> Iterator[tuple[int, Node]]:
    """The inputs of a region that are matrices of booleans, with their numbers."""
    for number, (node, layout) in enumerate(zip(region.inputs, text.inputs, strict=True)):
        if layout.dtype is torch.bool and len(layout.shape) > 1 and not layout.permuted:
            yield number, node


def gathered(
    graphs: Sequence[tuple[Region, Written]], bands: Mapping[Node, Band] = MappingProxyType({})
) -> tuple[Found, ...]:
    """Returns each distinct region once, without those too small to matter.

    Args:
        bands: what is true of masks, where that is a band.
    """
    by_key: dict[str, list[tuple[Region, Written]]] = {}
    for region, text in graphs:
        by_key.setdefault(text.key, []).append((region, text))
    found = {key: _found(same) for key, same in by_key.items()}
    whole = sum(each.moved for each in found.values())
    worth = []
    for key, each in found.items():
        if each.moved > WORTH * whole:
            region, text = by_key[key][0]
            own = {number: bands[node] for number, node in _masks(region, text) if node in bands}
            positive = positive_inputs(text, value_of(region.inputs[0]).device)
            worth.append(replace(each, positive=positive, bands=own))
    return tuple(sorted(worth, key=lambda each: -each.moved))


def _found(same: Sequence[tuple[Region, Written]]) -> Found:
    region, text = same[0]
    places = dict.fromkeys(place for each, _ in same for place in _places(each))
    return Found(text, tuple(places), len(same), _alone(region))


def _places(region: Region) -> Iterable[str]:
    for node in region.nodes:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if stack and not (region.outputs and node not in region.outputs):
            yield path_pattern(_dotted(str(stack[-1][0])))


def _dotted(name: str) -> str:
    """``model.layers.0`` for ``L['own'].__self__.model.layers.0`` and ``L['own'].__self__._modules['model']...``"""
    name = re.sub(r"\._modules\['([^']*)'\]", r".\1", name)
    name = re.sub(r"^L\['\w+'\](\.__self__)?\.?", "", name)
    return re.sub(r"\['?(\w+)'?\]", r".\1", name)


def _alone(region: Region) -> int:
    """Bytes that the region's operations move, each alone; views move nothing."""
    return sum(
        _bytes(node) + sum(map(_bytes, node.all_input_nodes)) for node in region.nodes if not _is_view(node)
    )


def _is_view(node: Node) -> bool:
    value = value_of(node)
    if not isinstance(value, torch.Tensor):
        return True
    given = [value_of(each) for each in node.all_input_nodes]
    storages = {t.untyped_storage()._cdata for t in given if isinstance(t, torch.Tensor)}
    return value.untyped_storage()._cdata in storages


def _bytes(node: Node) -> int:
    value = value_of(node)
    if not isinstance(value, torch.Tensor):
        return 0
    layout = layout_of(value)
    return layout.bytes if layout else value.numel() * value.itemsize

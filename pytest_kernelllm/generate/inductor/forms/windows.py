"""Depthwise convolutions and averages over windows as sums, so that Inductor writes kernels and calls no library.

A program then reads its inputs as they lie, fuses what comes before and after, and needs no copy in another layout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.forms.form import Form, Traced, aten
from pytest_kernelllm.generate.inductor.variants import Variant

MOST_TAPS = 64
"""A kernel reads each input so many times; with more, the library's way is better."""

_FEW_TAPS = 25
"""Inductor itself writes averages over so few elements as sums, and those over windows that do not overlap."""

_AVERAGES: Mapping[Any, int] = {aten.avg_pool2d.default: 2, aten.avg_pool3d.default: 3}
"""The number of axes of each average over windows."""

_TO = torch.ops.prims.convert_element_type.default


class Depthwise(Form):
    """Convolutions in which every channel has a filter of its own, as sums over the places of a window.

    They win on KernelBench's 1/82 (2.54), 1/83 (27.6), 1/84 (2.51), 1/85 (17.0) and 1/86 (1.90).
    """

    name = "depthwise convolutions"

    def matches(self, traced: Traced) -> bool:
        """Whether there is one with fixed sizes and a small window."""
        return any(map(is_depthwise, traced.graph.nodes))

    def writes(self, graph: GraphModule, gpu: Gpu, variant: Variant) -> None:
        """Writes all of them as sums."""
        for node in filter(is_depthwise, list(graph.graph.nodes)):
            _replace(node, _convolution)


class Averages(Form):
    """Averages over windows, which no kernel module can leave to the library: without this form, its module has no kernel.

    It wins on KernelBench's 1/46 (3.18), by the way in which ``Depthwise`` sums.
    """

    name = "averages over windows"

    def matches(self, traced: Traced) -> bool:
        """Whether there is one that Inductor leaves to the library."""
        return any(map(is_average, traced.graph.nodes))

    def writes(self, graph: GraphModule, gpu: Gpu, variant: Variant) -> None:
        """Writes all of them as sums, unless the library has to compute a gradient of one."""
        if not any(map(_is_gradient_of_the_library, graph.graph.nodes)):
            for node in filter(is_average, list(graph.graph.nodes)):
                _replace(node, _average)


def is_depthwise(node: Node) -> bool:
    """Whether a node is a convolution in which every channel has a filter of its own."""
    if node.target is not aten.convolution.default:
        return False
    x, weight, _, _, _, _, transposed, _, groups = node.args
    assert isinstance(x, Node) and isinstance(weight, Node)
    size, filters = x.meta["val"].shape, weight.meta["val"].shape
    return (
        not transposed
        and groups == filters[0] == size[1] != 1
        and len(size) == len(filters)
        and all(isinstance(n, int) for n in (*size[1:], *filters))
        and math.prod(filters[2:]) <= MOST_TAPS
    )


def is_average(node: Node) -> bool:
    """Whether a node is an average over windows of one size, padding included, that Inductor leaves to the library."""
    if node.target not in _AVERAGES:
        return False
    average = _Average.of(node)
    return (
        all(isinstance(n, int) for n in average.x.meta["val"].shape[-len(average.window) :])
        and _FEW_TAPS < math.prod(average.window) <= MOST_TAPS
        and average.window != average.strides
        and average.x.meta["val"].is_floating_point()  # those of whole numbers are truncated
        and not average.incomplete
        and (average.padding_counts or not any(average.padding))
    )


def _is_gradient_of_the_library(node: Node) -> bool:
    """Whether a node is the gradient of an average that Inductor leaves to the library, and so the whole program."""
    return node.target is aten.avg_pool2d_backward.default and math.prod(_each(node.args[2], 2)) > _FEW_TAPS


def _replace(node: Node, replacement: Callable[[Node], Node]) -> None:
    with node.graph.inserting_before(node):
        node.replace_all_uses_with(replacement(node))
    node.graph.erase_node(node)


def _convolution(node: Node) -> Node:
    x, weight, bias, strides, padding, dilation, *_ = node.args
    assert isinstance(x, Node) and isinstance(weight, Node)
    channels, _, *window = weight.meta["val"].shape
    ones = [1] * len(window)
    taps = _call(aten.view.default, weight, [channels, math.prod(window)])
    places = _places(node, x, window, *(_each(v, len(window)) for v in (strides, padding, dilation)))
    total = None
    for number, part in enumerate(places):
        tap = _call(aten.view.default, _call(aten.select.int, taps, 1, number), [channels, *ones])
        product = _call(aten.mul.Tensor, _precise(part), _precise(tap))
        total = product if total is None else _call(aten.add.Tensor, total, product)
    assert total is not None
    if bias is not None:
        assert isinstance(bias, Node)
        total = _call(aten.add.Tensor, total, _precise(_call(aten.view.default, bias, [channels, *ones])))
    return _as(node.meta["val"].dtype, total)


def _average(node: Node) -> Node:
    average = _Average.of(node)
    total = None
    for part in _places(
        node, average.x, average.window, average.strides, average.padding, [1] * len(average.window)
    ):
        total = _precise(part) if total is None else _call(aten.add.Tensor, total, _precise(part))
    assert total is not None
    mean = _call(aten.div.Tensor, total, float(average.divisor or math.prod(average.window)))
    return _as(node.meta["val"].dtype, mean)


@dataclass(frozen=True)
class _Average:
    """The arguments of an average over windows, with a value for each axis."""

    x: Node
    window: Sequence[int]
    strides: Sequence[int]
    padding: Sequence[int]
    incomplete: bool
    """Whether windows may reach beyond the padding."""
    padding_counts: bool
    divisor: int | None

    @classmethod
    def of(cls, node: Node) -> _Average:
        given: list[Any] = list(node.args)
        defaults: list[Any] = [[], [0], False, True, None]
        x, size, strides, padding, *others = [*given, *defaults[len(given) - 2 :]]
        axes = _AVERAGES[node.target]
        window = _each(size, axes)
        return cls(x, window, _each(strides or window, axes), _each(padding, axes), *others)


def _places(
    node: Node,
    x: Node,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Iterator[Node]:
    """Yields, for each place in a window, what the windows of ``x`` have there, in the shape of ``node``."""
    pads = [pad for each in reversed(padding) for pad in (each, each)]
    padded = _call(aten.constant_pad_nd.default, x, pads, 0.0) if any(pads) else x
    sizes = node.meta["val"].shape
    axes = range(len(sizes) - len(window), len(sizes))
    for place in itertools.product(*map(range, window)):
        part = padded
        for axis, index, stride, gap in zip(axes, place, strides, dilation, strict=True):
            start = index * gap
            end = start + (sizes[axis] - 1) * stride + 1
            part = _call(aten.slice.Tensor, part, axis, start, end, stride)
        yield part


def _call(operation: Any, *args: Any) -> Node:
    """Writes an operation where nodes are inserted at present."""
    first = args[0]
    made: Node = first.graph.call_function(operation, args)
    values = tree_map(lambda each: each.meta["val"] if isinstance(each, Node) else each, args)
    # Without Python's dispatcher, a padding would look up symbolic sizes and fix them.
    with values[0].fake_mode, enable_python_dispatcher(), torch.no_grad():
        made.meta["val"] = operation(*values)
    return made


def _precise(tensor: Node) -> Node:
    dtype = tensor.meta["val"].dtype
    return tensor if dtype in (torch.float32, torch.float64) else _call(_TO, tensor, torch.float32)


def _as(dtype: torch.dtype, tensor: Node) -> Node:
    return tensor if tensor.meta["val"].dtype == dtype else _call(_TO, tensor, dtype)


def _each(values: Any, axes: int) -> list[int]:
    """Returns a value for each axis, where one may stand for all."""
    return list(values) * axes if len(values) == 1 else list(values)

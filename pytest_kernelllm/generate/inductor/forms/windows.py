"""Depthwise convolutions as sums, so that Inductor writes kernels and calls no library.

A program then reads its inputs as they lie, fuses what comes before and after, and needs no copy in another layout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.forms.form import Form, Traced, aten
from pytest_kernelllm.generate.inductor.variants import Variant

MOST_TAPS = 64
"""A kernel reads each input so many times; with more, the library's way is better."""

_TO = torch.ops.prims.convert_element_type.default


class Depthwise(Form):
    """Convolutions in which every channel has a filter of its own, as sums over the places of a window.

    They win on KernelBench's 1/82 (2.54), 1/83 (27.6), 1/84 (2.51), 1/85 (17.0) and 1/86 (1.90).
    """

    name = "depthwise convolutions"
    early = True

    def matches(self, traced: Traced) -> bool:
        """Whether there is one with fixed sizes and a small window."""
        return any(map(is_depthwise, traced.graph.nodes))

    def writes(self, graph: GraphModule, gpu: Gpu, variant: Variant) -> None:
        """Writes all of them as sums."""
        for node in filter(is_depthwise, list(graph.graph.nodes)):
            with node.graph.inserting_before(node):
                node.replace_all_uses_with(_sum(node))
            node.graph.erase_node(node)


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


def _sum(node: Node) -> Node:
    x, weight, bias, strides, padding, dilation, *_ = cast(Any, node.args)
    channels, _, *window = weight.meta["val"].shape
    shape = [channels, *[1] * len(window)]
    taps = _call(aten.view.default, weight, [channels, math.prod(window)])
    # One value may stand for all dimensions.
    each = (list(v) * len(window) if len(v) == 1 else list(v) for v in (strides, padding, dilation))
    total = None
    for number, part in enumerate(_places(node, x, window, *each)):
        tap = _call(aten.view.default, _call(aten.select.int, taps, 1, number), shape)
        product = _call(aten.mul.Tensor, _precise(part), _precise(tap))
        total = product if total is None else _call(aten.add.Tensor, total, product)
    assert total is not None
    if bias is not None:
        total = _call(aten.add.Tensor, total, _precise(_call(aten.view.default, bias, shape)))
    dtype = node.meta["val"].dtype
    return total if total.meta["val"].dtype == dtype else _call(_TO, total, dtype)


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
    made: Node = args[0].graph.call_function(operation, args)
    values = tree_map(lambda each: each.meta["val"] if isinstance(each, Node) else each, args)
    # Without Python's dispatcher, a padding would look up symbolic sizes and fix them.
    with values[0].fake_mode, enable_python_dispatcher(), torch.no_grad():
        made.meta["val"] = operation(*values)
    return made


def _precise(tensor: Node) -> Node:
    dtype = tensor.meta["val"].dtype
    return tensor if dtype in (torch.float32, torch.float64) else _call(_TO, tensor, torch.float32)

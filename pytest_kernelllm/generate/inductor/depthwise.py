"""Rewrites depthwise convolutions as sums of products, so that Inductor writes kernels and calls no library.

A program then reads its inputs as they lie, fuses what comes before and after, and needs no copy in another layout.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import Graph, Node
from torch.utils._pytree import tree_map

aten = torch.ops.aten

MOST_TAPS = 64
"""A kernel reads each input so many times; with more, the library's way is better."""


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


def as_sums(graph: Graph) -> None:
    """Replaces every depthwise convolution of a graph, which has fake tensors, by sums over the taps of its filter."""
    for node in list(graph.nodes):
        if is_depthwise(node):
            with graph.inserting_before(node):
                node.replace_all_uses_with(_sum(node))
            graph.erase_node(node)


def _sum(node: Node) -> Node:
    x, weight, bias, strides, padding, dilation, *_ = node.args
    assert isinstance(weight, Node)
    graph, dtype = node.graph, node.meta["val"].dtype
    axes = range(2, node.meta["val"].ndim)
    ones = [1] * len(axes)

    def call(operation: Any, *args: Any) -> Node:
        made = graph.call_function(operation, args)
        values = tree_map(lambda each: each.meta["val"] if isinstance(each, Node) else each, args)
        # Without Python's dispatcher, a padding would look up symbolic sizes and fix them.
        with values[0].fake_mode, enable_python_dispatcher(), torch.no_grad():
            made.meta["val"] = operation(*values)
        return made

    def precise(tensor: Any) -> Node:
        return tensor if dtype in (torch.float32, torch.float64) else call(_TO, tensor, torch.float32)

    pads = [pad for each in reversed(_each(padding, axes)) for pad in (each, each)]
    padded = call(aten.constant_pad_nd.default, x, pads, 0.0) if any(pads) else x
    channels, _, *window = weight.meta["val"].shape
    taps = call(aten.view.default, weight, [channels, math.prod(window)])
    total = None
    for number, place in enumerate(itertools.product(*map(range, window))):
        part = padded
        for axis, index, stride, gap in zip(
            axes, place, _each(strides, axes), _each(dilation, axes), strict=True
        ):
            start = index * gap
            end = start + (node.meta["val"].shape[axis] - 1) * stride + 1
            part = call(aten.slice.Tensor, part, axis, start, end, stride)
        tap = call(aten.view.default, call(aten.select.int, taps, 1, number), [channels, *ones])
        product = call(aten.mul.Tensor, precise(part), precise(tap))
        total = product if total is None else call(aten.add.Tensor, total, product)
    assert total is not None
    if bias is not None:
        total = call(aten.add.Tensor, total, precise(call(aten.view.default, bias, [channels, *ones])))
    return total if total.meta["val"].dtype == dtype else call(_TO, total, dtype)


_TO = torch.ops.prims.convert_element_type.default


def _each(values: Any, axes: range) -> list[int]:
    """Returns a value for each axis, where one may stand for all."""
    return list(values) * len(axes) if len(values) == 1 else list(values)

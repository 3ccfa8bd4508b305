"""Finds products of few rows with large weights, which become one kernel, several together where they read the same rows.

Such a product takes as long as its weights take to be read, and keeps a GPU busy only where there are about as many programs as
multiprocessors, each with much of the weights in its pipeline. On an H200, for 64 rows of 4,096 in bfloat16, the products that give
queries, keys and values took 27.8 µs one after the other in cuBLAS, and 17.3 as one kernel; one of 4,096 columns and length
14,336 took 39.4 and 34.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.few_rows_kernel import PRODUCTS
from pytest_kernelllm.generate.inductor.trace import TraceError

_MOST_ROWS = 64
_MOST_TOGETHER = 4
_LARGE_WEIGHT = 1 << 18
"""Elements of a weight from which on reading it takes most of a product's time."""
_COLUMNS_PER_MULTIPROCESSOR = 64
"""Up to so many, a product alone does not keep a GPU busy. Wider ones are as fast alone, and what comes after them is computed
in their kernels."""
_BLOCKS = {32: (256, 4), 64: (128, 6), 128: (128, 4)}
"""By the columns of a block: its length along the summed dimension, and the pipeline stages. They were the fastest of 126 on an
H200 for seven products of 64 rows."""
_LEAST_BLOCK_ROWS = 16
"""Of the smallest block that tensor cores take."""
_TRACED_INPUTS = "eager_input_vals"
"""Where a node keeps what it read when it was traced. Inductor copies what does not lie like that."""

aten = torch.ops.aten
_VIEWS = (aten.view.default, aten._unsafe_view.default)
_INDIFFERENT = {
    *_VIEWS,
    aten.expand.default,
    aten.permute.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.transpose.int,
    aten.unsqueeze.default,
}
"""Views that are possible wherever rows lie, ``_VIEWS`` as ``reshape``."""


@dataclass(frozen=True)
class _Product:
    """``x @ weight``, and perhaps a bias that is added."""

    node: Node
    bias: Node | None
    x: Node
    weight: Node

    @property
    def columns(self) -> int:
        return int(self.weight.meta["val"].shape[1])

    @property
    def is_of_few_rows(self) -> bool:
        """Whether it is a product of few rows in half precision with a large weight of known sizes."""
        x, weight = self.x.meta["val"], self.weight.meta["val"]
        if x.dtype not in (torch.bfloat16, torch.float16):
            return False
        if not all(isinstance(size, int) for size in weight.shape) or 1 not in weight.stride():
            return False
        if self.bias is not None:
            bias = self.bias.meta["val"]
            if (bias.shape, bias.stride(), bias.dtype) != (weight.shape[1:], (1,), x.dtype):
                return False
        return (
            math.prod(weight.shape) >= _LARGE_WEIGHT and x.shape[0] != 0 and _most(x.shape[0]) <= _MOST_ROWS
        )

    @property
    def shared(self) -> str:
        """What products must have in common to be one kernel: what they read, and how their weights lie."""
        read = (self.x.target, self.x.args) if _is_view(self.x) else self.x
        return repr((read, self.weight.meta["val"].stride(), self.bias is None))

    @property
    def may_be_part(self) -> bool:
        """Whether it can be computed with others: its weight is there before them, and nothing asks where its result lies."""
        given = [self.weight] if self.bias is None else [self.weight, self.bias]
        return all(map(_is_there, given)) and _lies_anywhere(self.node)


def _most(size: int | torch.SymInt) -> float:
    """Returns the largest value that a size may have."""
    if isinstance(size, int):
        return size
    node = size.node
    return float(node.shape_env.bound_sympy(node.expr).upper)


def _is_view(node: Node) -> bool:
    return node.op == "call_function" and bool(getattr(node.target, "is_view", False))


def _is_there(node: Node) -> bool:
    """Whether a node is an argument of the graph, or a view of one."""
    sources = node.all_input_nodes if _is_view(node) else [node]
    return all(source.op == "placeholder" for source in sources)


def _lies_anywhere(node: Node) -> bool:
    """Whether a result may lie in a larger one: it is not returned, nor are views taken of it that are possible only where its
    rows follow each other, or that are returned."""
    return all(
        _lies_anywhere(user) if user.target in _INDIFFERENT else user.op != "output" and not _is_view(user)
        for user in node.users
    )


def has_products(graph: Graph, gpu: Gpu) -> bool:
    """Whether ``with_products`` would rewrite any."""
    return bool(_groups(graph, gpu))


def with_products(graph: torch.fx.GraphModule, gpu: Gpu) -> torch.fx.GraphModule:
    """Rewrites the products of few rows in a graph, in place, and returns it.

    Args:
        graph: the graph, with fake tensors.
        gpu: the GPU that the code is for.

    Raises:
        TraceError: a result would have other strides than the original's.
    """
    strides = _output_strides(graph)
    for products in _groups(graph.graph, gpu):
        _write(graph.graph, products, _block(products, gpu))
    graph.graph.eliminate_dead_code()
    graph.recompile()
    _propagate(graph)
    if _output_strides(graph) != strides:
        raise TraceError("products of few rows would give a result other strides")
    return graph


def _groups(graph: Graph, gpu: Gpu) -> list[list[_Product]]:
    """Returns the products that become kernels, those together that become one.

    Those with fewer programs than half as many as the GPU has multiprocessors stay with the library, which has more.
    """
    groups: dict[str, list[_Product]] = {}
    for product in _products(graph):
        narrow = product.columns <= _COLUMNS_PER_MULTIPROCESSOR * gpu.multi_processor_count
        key = product.shared if narrow and product.may_be_part else product.node.name
        groups.setdefault(key, []).append(product)
    parts = [
        products[start : start + _MOST_TOGETHER]
        for products in groups.values()
        for start in range(0, len(products), _MOST_TOGETHER)
    ]
    return [part for part in parts if _programs(part, min(_BLOCKS)) >= gpu.multi_processor_count // 2]


def _products(graph: Graph) -> Iterator[_Product]:
    for node in graph.nodes:
        match node.target, node.args:
            case aten.mm.default, (x, weight):
                product = _Product(node, None, x, weight)
            case aten.addmm.default, (bias, x, weight) if not node.kwargs:
                product = _Product(node, bias, x, weight)
            case _:
                continue
        if product.is_of_few_rows:
            yield product


def _write(graph: Graph, products: Sequence[_Product], block: list[int]) -> None:
    """Replaces products that share their rows by one operation."""
    first, *others = products
    with graph.inserting_before(first.node):
        weights = [first.weight, *(_earlier(graph, product.weight) for product in others)]
        biases = [] if first.bias is None else [first.bias]
        biases += [_earlier(graph, product.bias) for product in others if product.bias is not None]
        result = graph.call_function(PRODUCTS, (first.x, weights, biases, block))
        if not others:
            first.node.replace_all_uses_with(result)
            return
        start = 0
        for product in products:
            end = start + product.columns
            part = graph.call_function(aten.slice.Tensor, (result, 1, start, end))
            _reshape_views(product.node)
            product.node.replace_all_uses_with(part)
            start = end


def _earlier(graph: Graph, node: Node) -> Node:
    """Returns an argument of the graph, or the same view of one, where nodes are inserted at present."""
    return node if node.op == "placeholder" else graph.node_copy(node)


def _reshape_views(node: Node) -> None:
    """Lets what is a view of a result be a copy: rows that do not follow each other cannot be joined."""
    for user in node.users:
        if user.target in _INDIFFERENT:
            _reshape_views(user)
            if user.target in _VIEWS:
                user.target = aten.reshape.default


def _programs(products: Sequence[_Product], width: int) -> int:
    return sum(math.ceil(product.columns / width) for product in products)


def _block(products: Sequence[_Product], gpu: Gpu) -> list[int]:
    """Returns the rows, the columns and the length of a block, and the pipeline stages.

    It is the narrowest with which all programs run at once.
    """
    fits = (width for width in _BLOCKS if _programs(products, width) <= gpu.multi_processor_count)
    width = next(fits, max(_BLOCKS))
    length, stages = _BLOCKS[width]
    rows = _most(products[0].x.meta["val"].shape[0])
    height = max(_LEAST_BLOCK_ROWS, 1 << (int(rows) - 1).bit_length())
    fitting = gpu.shared_memory_per_block_optin // ((height + width) * length * 2)
    if fitting < 2:
        length, fitting = length // 2, 2 * fitting
    return [height, width, length, min(stages, fitting)]


def _propagate(graph: torch.fx.GraphModule) -> None:
    """Computes what the nodes say about their tensors anew, as parts of a common result lie in another way."""
    values = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    mode = next(value.fake_mode for value in values if isinstance(value, FakeTensor))
    FakeTensorProp(graph, mode).propagate_dont_convert_inputs(*values)
    for node in graph.graph.nodes:
        if _TRACED_INPUTS in node.meta:
            node.meta[_TRACED_INPUTS] = torch.fx.map_arg(
                (node.args, node.kwargs), lambda argument: argument.meta["val"]
            )


def _output_strides(graph: torch.fx.GraphModule) -> list[Any]:
    [output] = graph.graph.find_nodes(op="output")
    values = [node.meta["val"] for node in output.all_input_nodes]
    return [value.stride() for value in values if isinstance(value, torch.Tensor)]

"""Products of few rows with large weights as one kernel, several together where they read the same rows.

Such a product takes as long as its weights take to be read, and keeps a GPU busy only where there are about as many programs as
multiprocessors, each with much of the weights in its pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._inductor import lowering, select_algorithm
from torch._inductor.ir import ExternKernel, FixedLayout
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.forms.form import Form, Traced, aten
from pytest_kernelllm.generate.inductor.trace import TraceError
from pytest_kernelllm.generate.inductor.variants import Variant

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
"""Rows of the smallest block that tensor cores take."""
_TRACED_INPUTS = "eager_input_vals"
"""Attribute of a node with the layout that it read when it was traced. Inductor copies what does not lie like that."""

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


class FewRows(Form):
    """Products of at most 64 rows in half precision.

    They win on a layer of a Llama of 4,096 columns, with 64 tokens in bfloat16: 148 µs in CUDA graphs in place of 172 with the
    library's products (169 with ``torch.compile``). Of that the products for queries, keys and values take 16.3 µs in place of 27.8,
    and that of 4,096 columns and length 14,336 takes 33.9 in place of 39.4.
    """

    name = "products of few rows"

    def matches(self, traced: Traced) -> bool:
        """Whether there is one that becomes a kernel."""
        return bool(_groups(traced.graph, traced.gpu))

    def writes(self, graph: GraphModule, gpu: Gpu, variant: Variant) -> None:
        """Writes those that become kernels."""
        strides = _output_strides(graph)
        for products in _groups(graph.graph, gpu):
            _write(graph.graph, products, _block(products, gpu))
        graph.graph.eliminate_dead_code()
        graph.recompile()
        _propagate(graph)
        if _output_strides(graph) != strides:
            raise TraceError("products of few rows would give a result other strides")


@dataclass(frozen=True)
class _Product:
    """``x @ weight``."""

    node: Node
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
        return (
            math.prod(weight.shape) >= _LARGE_WEIGHT and x.shape[0] != 0 and _most(x.shape[0]) <= _MOST_ROWS
        )

    @property
    def shared(self) -> str:
        """What products must have in common to be one kernel: what they read, and how their weights lie."""
        read = (self.x.target, self.x.args) if _is_view(self.x) else self.x
        return repr((read, self.weight.meta["val"].stride()))

    @property
    def may_be_part(self) -> bool:
        """Whether it can be computed with others: its weight is there before them, and nothing asks where its result lies."""
        return _is_there(self.weight) and _lies_anywhere(self.node)


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
    for node in graph.find_nodes(op="call_function", target=aten.mm.default):
        x, weight = node.args
        product = _Product(node, x, weight)
        if product.is_of_few_rows:
            yield product


def _write(graph: Graph, products: Sequence[_Product], block: list[int]) -> None:
    """Replaces products that share their rows by one operation."""
    first, *others = products
    with graph.inserting_before(first.node):
        weights = [first.weight, *(_earlier(graph, product.weight) for product in others)]
        result = graph.call_function(_PRODUCTS, (first.x, weights, block))
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


def _propagate(graph: GraphModule) -> None:
    """Computes what the nodes say about their tensors anew, as parts of a common result lie in another way."""
    values = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    mode = next(value.fake_mode for value in values if isinstance(value, FakeTensor))
    FakeTensorProp(graph, mode).propagate_dont_convert_inputs(*values)
    for node in graph.graph.nodes:
        if _TRACED_INPUTS in node.meta:
            node.meta[_TRACED_INPUTS] = torch.fx.map_arg(
                (node.args, node.kwargs), lambda argument: argument.meta["val"]
            )


def _output_strides(graph: GraphModule) -> list[Any]:
    [output] = graph.graph.find_nodes(op="output")
    values = [node.meta["val"] for node in output.all_input_nodes]
    return [value.stride() for value in values if isinstance(value, torch.Tensor)]


# --------------------------------------------------------------------------- the operation and its template


_LIBRARY = torch.library.Library("kernelllm", "FRAGMENT")
_LIBRARY.define("products(Tensor x, Tensor[] weights, int[] block) -> Tensor")
_PRODUCTS = torch.ops.kernelllm.products.default
"""Multiplies x (rows, length) with each of the weights (length, columns), and returns the results side by side. ``block`` is rows,
columns and length of a block, and the pipeline stages."""


def _fake(x: torch.Tensor, weights: Sequence[torch.Tensor], block: Sequence[int]) -> torch.Tensor:
    return x.new_empty(x.shape[0], sum(weight.shape[1] for weight in weights))


torch.library.register_fake("kernelllm::products", _fake, lib=_LIBRARY)


@lowering.register_lowering(_PRODUCTS, type_promotion_kind=None)
def _lower(x: Any, weights: Sequence[Any], block: Sequence[int]) -> Any:
    rows, length = x.get_size()
    columns = [weight.get_size()[1] for weight in weights]
    height, width, depth, stages = block
    choice = _template(len(weights)).generate(
        tuple(ExternKernel.realize_input(each) for each in (x, *weights)),
        FixedLayout(x.get_device(), x.get_dtype(), [rows, sum(columns)]),
        num_stages=stages,
        num_warps=4,
        BLOCK_M=height,
        BLOCK_N=width,
        BLOCK_K=depth,
        WEIGHTS=len(weights),
        TILES=sum(math.ceil(n / width) for n in columns),
        EVEN_M=V.graph.sizevars.statically_known_equals(rows, height),
        EVEN_N=all(int(n) % width == 0 for n in columns),
        EVEN_K=int(length) % depth == 0,
    )
    return choice.output_node()


@cache
def _template(weights: int) -> select_algorithm.TritonTemplate:
    """Returns the template for so many weights."""
    names = ", ".join(map(repr, ["X", *(f"W{n}" for n in range(weights))]))
    return select_algorithm.TritonTemplate(f"few_rows_{weights}", _grid, _KERNEL.replace("NAMES", names))


@select_algorithm.SymbolicGridFn
def _grid(rows: int, columns: int, meta: Mapping[str, int]) -> tuple[int, int, int]:
    return meta["TILES"], 1, 1


_KERNEL = """{% macro times(name, axis) %}{% if stride(name, axis) != "1" %} * {{stride(name, axis)}}{% endif %}{% endmacro %}
{{def_kernel(NAMES)}}
    rows = {{size("X", 0)}}
    length = {{size("X", 1)}}
    tile = tl.program_id(0)
    weight = W0
    columns = {{size("W0", 1)}}
    {% if WEIGHTS > 1 %}
    first_column = 0
    {% endif %}
    {% for n in range(1, WEIGHTS) %}
    if tile >= (columns + BLOCK_N - 1) // BLOCK_N:
        tile -= (columns + BLOCK_N - 1) // BLOCK_N
        first_column += columns
        weight = W{{n}}
        columns = {{size("W%d" % n, 1)}}
    {% endfor %}
    rm = tl.arange(0, BLOCK_M)
    rn = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    read = {% if EVEN_M %}rm{% else %}tl.where(rm < rows, rm, 0){% endif %}

    in_columns = rn[None, :] < columns
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, length, BLOCK_K):
        at = start + rk
        a_ptrs = X + read[:, None]{{times("X", 0)}} + at[None, :]{{times("X", 1)}}
        b_ptrs = weight + at[:, None]{{times("W0", 0)}} + rn[None, :]{{times("W0", 1)}}
        {% if EVEN_K %}
        a = tl.load(a_ptrs)
        {% else %}
        a = tl.load(a_ptrs, at[None, :] < length, other=0.0)
        {% endif %}
        {% if EVEN_K and EVEN_N %}
        b = tl.load(b_ptrs)
        {% elif EVEN_K %}
        b = tl.load(b_ptrs, in_columns, other=0.0)
        {% else %}
        b = tl.load(b_ptrs, in_columns & (at[:, None] < length), other=0.0)
        {% endif %}
        acc = tl.dot(a, b, acc)
    idx_m = rm[:, None]
    idx_n = {% if WEIGHTS > 1 %}first_column + {% endif %}rn[None, :]
    mask = (rm[:, None] < rows) & in_columns
    {{store_output(("idx_m", "idx_n"), "acc", "mask", val_shape=("BLOCK_M", "BLOCK_N"))}}
"""

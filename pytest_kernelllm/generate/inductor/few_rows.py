"""Writes products of a few rows with large weights as one kernel of ours, several of them where they read the same rows.

Such a product takes as long as its weights take to be read, and keeps a GPU busy only where there are about as many programs as
processors, each with much of the weights under way. On an H200, for 64 rows of 4,096 in bfloat16, the products that give
queries, keys and values took 27.8 µs one after the other in cuBLAS, and 17.3 as one kernel; that of 14,336 columns by as many
rows of weights 39.4 and 34.3.
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
from torch.fx import Graph, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from pytest_kernelllm.generate.inductor.device import Gpu

MOST_ROWS = 64
_MOST_TOGETHER = 4
_LARGE = 1 << 18
"""Elements of a weight from which on reading it takes most of the time."""
_PARTLY = 64
"""Columns for each processor up to which a product alone does not keep a GPU busy. Wider ones by themselves are as fast, and what
comes after them is computed in their kernels."""
_BLOCKS = {32: (256, 4), 64: (128, 6), 128: (128, 4)}
"""The length of a block, and how many of them are under way, by its columns: the narrowest for which all programs run at once."""
_NARROWEST = min(_BLOCKS)
_LOWEST = 16
"""Rows of the smallest block that tensor cores take."""

_READ = "eager_input_vals"
"""Where a node keeps what it read when it was traced. Inductor copies what does not lie like that."""

_LIBRARY = torch.library.Library("kernelllm", "FRAGMENT")
_LIBRARY.define("products(Tensor x, Tensor[] weights, int[] block) -> Tensor")
_PRODUCTS = torch.ops.kernelllm.products.default


def _like(x: torch.Tensor, weights: Sequence[torch.Tensor], block: Sequence[int]) -> torch.Tensor:
    return x.new_empty(x.shape[0], sum(weight.shape[1] for weight in weights))


torch.library.register_fake("kernelllm::products", _like, lib=_LIBRARY)


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
    def shared(self) -> str:
        """What products must have in common to be one kernel: what they read, by which views, and how their weights lie."""
        read = (self.x.target, self.x.args) if _is_view(self.x) else self.x
        return repr((read, self.weight.meta["val"].stride()))

    @property
    def may_be_part(self) -> bool:
        """Whether it can be computed with others: its weight is there before them, and a part of their result will do.

        What is returned must lie as in the original. A bias would be added to what was rounded.
        """
        weight = self.weight.all_input_nodes[0] if _is_view(self.weight) else self.weight
        return weight.op == "placeholder" and self.bias is None and not _is_returned(self.node)


def _is_view(node: Node) -> bool:
    return node.op == "call_function" and bool(getattr(node.target, "is_view", False))


def _is_returned(node: Node) -> bool:
    return any(user.op == "output" or (_is_view(user) and _is_returned(user)) for user in node.users)


def has_products(graph: Graph, gpu: Gpu) -> bool:
    """Whether a graph computes products of few rows for which the library has too few programs, or none that share rows."""
    return bool(_groups(graph, gpu))


def with_products(graph: torch.fx.GraphModule, gpu: Gpu) -> torch.fx.GraphModule:
    """Rewrites the products of few rows in a graph, in place, and returns it.

    Args:
        graph: the graph, with fake tensors.
        gpu: the GPU that the code is for.
    """
    for products in _groups(graph.graph, gpu):
        _write(graph.graph, products, _block(products, gpu))
    graph.graph.eliminate_dead_code()
    graph.recompile()
    _propagate(graph)
    return graph


def _groups(graph: Graph, gpu: Gpu) -> list[list[_Product]]:
    """Returns the products that become kernels, those together that become one; not those with too few programs."""
    groups: dict[str, list[_Product]] = {}
    for product in _products(graph):
        together = product.may_be_part and product.columns <= _PARTLY * gpu.multi_processor_count
        groups.setdefault(product.shared if together else product.node.name, []).append(product)
    parts = [
        products[start : start + _MOST_TOGETHER]
        for products in groups.values()
        for start in range(0, len(products), _MOST_TOGETHER)
    ]
    return [part for part in parts if _programs(part, _NARROWEST) >= gpu.multi_processor_count // 2]


def _products(graph: Graph) -> Iterator[_Product]:
    for node in graph.nodes:
        match node.target, node.args:
            case torch.ops.aten.mm.default, (x, weight):
                product = _Product(node, None, x, weight)
            case torch.ops.aten.addmm.default, (bias, x, weight) if not node.kwargs:
                product = _Product(node, bias, x, weight)
            case _:
                continue
        left, right = product.x.meta["val"], product.weight.meta["val"]
        half = left.dtype in (torch.bfloat16, torch.float16)
        fixed = all(isinstance(size, int) for size in right.shape)
        large = half and fixed and math.prod(right.shape) >= _LARGE and 1 in right.stride()
        if large and _most(left.shape[0]) <= MOST_ROWS:
            yield product


def _most(size: int | torch.SymInt) -> float:
    """Returns the largest value that a size may have."""
    if isinstance(size, int):
        return size
    node = size.node
    return float(node.shape_env.bound_sympy(node.expr).upper)


def _write(graph: Graph, products: Sequence[_Product], block: list[int]) -> None:
    """Replaces products that share their rows by one operation."""
    first, *others = products
    with graph.inserting_before(first.node):
        weights = [first.weight, *(_earlier(graph, product.weight) for product in others)]
        result = graph.call_function(_PRODUCTS, (first.x, weights, block))
        start = 0
        for product in products:
            part = result
            if others:
                end = start + product.columns
                part = graph.call_function(torch.ops.aten.slice.Tensor, (result, 1, start, end))
                start = end
            if product.bias is not None:
                part = graph.call_function(torch.ops.aten.add.Tensor, (part, product.bias))
            product.node.replace_all_uses_with(part)


def _earlier(graph: Graph, weight: Node) -> Node:
    """Returns a weight, or the same view of it, where nodes are inserted at present."""
    return weight if weight.op == "placeholder" else graph.node_copy(weight)


def _programs(products: Sequence[_Product], width: int) -> int:
    return sum(math.ceil(product.columns / width) for product in products)


def _block(products: Sequence[_Product], gpu: Gpu) -> list[int]:
    """Returns the rows, the columns and the length of a block, and how many of them are under way.

    The widths and lengths were the fastest of 126 on an H200 for seven products of 64 rows.
    """
    fits = (width for width in _BLOCKS if _programs(products, width) <= gpu.multi_processor_count)
    width = next(fits, max(_BLOCKS))
    length, stages = _BLOCKS[width]
    rows = _most(products[0].x.meta["val"].shape[0])
    height = max(_LOWEST, 1 << (int(rows) - 1).bit_length())
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
        if _READ in node.meta:
            node.meta[_READ] = torch.fx.map_arg(
                (node.args, node.kwargs), lambda argument: argument.meta["val"]
            )


@lowering.register_lowering(_PRODUCTS, type_promotion_kind=None)
def _lower(x: Any, weights: Sequence[Any], block: Sequence[int]) -> Any:
    inputs = tuple(ExternKernel.realize_input(each) for each in (x, *weights))
    rows, length = x.get_size()
    columns = [weight.get_size()[1] for weight in weights]
    layout = FixedLayout(x.get_device(), x.get_dtype(), [rows, sum(columns)])
    height, width, depth, stages = block
    choice = _template(len(weights)).generate(
        inputs,
        layout,
        num_stages=stages,
        num_warps=4,
        BLOCK_M=height,
        BLOCK_N=width,
        BLOCK_K=depth,
        TOGETHER=len(weights) > 1,
        TILES=sum(math.ceil(n / width) for n in columns),
        EVEN_M=V.graph.sizevars.statically_known_equals(rows, height),
        EVEN_N=all(int(n) % width == 0 for n in columns),
        EVEN_K=int(length) % depth == 0,
    )
    return choice.output_node()


@cache
def _template(weights: int) -> select_algorithm.TritonTemplate:
    """Returns the template for so many weights."""
    names = [f"W{number}" for number in range(weights)]
    others = "    first_column = 0\n" * (weights > 1) + "".join(
        _OTHER.format(name=name) for name in names[1:]
    )
    kernel = _KERNEL.replace("NAMES", ", ".join(map(repr, ["X", *names]))).replace("OTHERS", others)
    return select_algorithm.TritonTemplate(f"few_rows_{weights}", _grid, kernel)


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
OTHERS
    rm = tl.arange(0, BLOCK_M)
    rn = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    {% if EVEN_M %}
    read = rm
    {% else %}
    read = tl.where(rm < rows, rm, 0)
    {% endif %}
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
    idx_n = {% if TOGETHER %}first_column + {% endif %}rn[None, :]
    mask = (rm[:, None] < rows) & in_columns
    {{store_output(("idx_m", "idx_n"), "acc", "mask", val_shape=("BLOCK_M", "BLOCK_N"))}}
"""

_OTHER = """\
    if tile >= (columns + BLOCK_N - 1) // BLOCK_N:
        tile -= (columns + BLOCK_N - 1) // BLOCK_N
        first_column += columns
        weight = {name}
        columns = {{{{size("{name}", 1)}}}}
"""

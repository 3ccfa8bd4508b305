"""The kernel for products of few rows: an operation, and its template for TorchInductor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._inductor import lowering, select_algorithm
from torch._inductor.ir import ExternKernel, FixedLayout
from torch._inductor.virtualized import V

_LIBRARY = torch.library.Library("kernelllm", "FRAGMENT")
_LIBRARY.define("products(Tensor x, Tensor[] weights, Tensor[] biases, int[] block) -> Tensor")
PRODUCTS = torch.ops.kernelllm.products.default
"""Multiplies x (rows, length) with each of the weights (length, columns), adds a bias (columns) to each result if there are any, and
returns the results side by side. ``block`` is rows, columns and length of a block, and the pipeline stages."""


def _fake(
    x: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor], block: Sequence[int]
) -> torch.Tensor:
    return x.new_empty(x.shape[0], sum(weight.shape[1] for weight in weights))


torch.library.register_fake("kernelllm::products", _fake, lib=_LIBRARY)


@lowering.register_lowering(PRODUCTS, type_promotion_kind=None)
def _lower(x: Any, weights: Sequence[Any], biases: Sequence[Any], block: Sequence[int]) -> Any:
    inputs = tuple(ExternKernel.realize_input(each) for each in (x, *weights, *biases))
    rows, length = x.get_size()
    columns = [weight.get_size()[1] for weight in weights]
    layout = FixedLayout(x.get_device(), x.get_dtype(), [rows, sum(columns)])
    height, width, depth, stages = block
    choice = _template(len(weights), bool(biases)).generate(
        inputs,
        layout,
        num_stages=stages,
        num_warps=4,
        BLOCK_M=height,
        BLOCK_N=width,
        BLOCK_K=depth,
        WEIGHTS=len(weights),
        BIASED=bool(biases),
        TILES=sum(math.ceil(n / width) for n in columns),
        EVEN_M=V.graph.sizevars.statically_known_equals(rows, height),
        EVEN_N=all(int(n) % width == 0 for n in columns),
        EVEN_K=int(length) % depth == 0,
    )
    return choice.output_node()


@cache
def _template(weights: int, biased: bool) -> select_algorithm.TritonTemplate:
    """Returns the template for so many weights."""
    names = ["X", *(f"W{n}" for n in range(weights)), *(f"B{n}" for n in range(weights) if biased)]
    text = _KERNEL.replace("NAMES", ", ".join(map(repr, names)))
    return select_algorithm.TritonTemplate(f"few_rows_{weights}{'_biased' * biased}", _grid, text)


@select_algorithm.SymbolicGridFn
def _grid(rows: int, columns: int, meta: Mapping[str, int]) -> tuple[int, int, int]:
    return meta["TILES"], 1, 1


_KERNEL = """{% macro times(name, axis) %}{% if stride(name, axis) != "1" %} * {{stride(name, axis)}}{% endif %}{% endmacro %}
{{def_kernel(NAMES)}}
    rows = {{size("X", 0)}}
    length = {{size("X", 1)}}
    tile = tl.program_id(0)
    weight = W0
    {% if BIASED %}
    bias = B0
    {% endif %}
    columns = {{size("W0", 1)}}
    {% if WEIGHTS > 1 %}
    first_column = 0
    {% endif %}
    {% for n in range(1, WEIGHTS) %}
    if tile >= (columns + BLOCK_N - 1) // BLOCK_N:
        tile -= (columns + BLOCK_N - 1) // BLOCK_N
        first_column += columns
        weight = W{{n}}
        {% if BIASED %}
        bias = B{{n}}
        {% endif %}
        columns = {{size("W%d" % n, 1)}}
    {% endfor %}
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
    {% if BIASED %}
    acc += tl.load(bias + rn, rn < columns, other=0.0).to(tl.float32)[None, :]
    {% endif %}
    idx_m = rm[:, None]
    idx_n = {% if WEIGHTS > 1 %}first_column + {% endif %}rn[None, :]
    mask = (rm[:, None] < rows) & in_columns
    {{store_output(("idx_m", "idx_n"), "acc", "mask", val_shape=("BLOCK_M", "BLOCK_N"))}}
"""

"""Attention with a mask, a bias or none as one kernel, for lengths and masks that the libraries' kernels do not take.

For those PyTorch multiplies in several kernels, in float32 where the mask is one of booleans. Here a program reads a block of
queries, and goes through the keys with a running maximum and sum (Milakov and Gimelshein, https://arxiv.org/abs/1805.02867; Dao et
al., https://arxiv.org/abs/2205.14135). Every key is read, also where the mask leaves it out: NaN comes through as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._inductor import lowering, select_algorithm
from torch._inductor.ir import ExternKernel, FixedLayout
from torch.fx import Graph, GraphModule, Node

from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.forms.form import Form, Traced, Writer, aten
from pytest_kernelllm.generate.inductor.variants import Variant

_BLOCKS = ((128, 64, 8, 2), (64, 64, 4, 2), (64, 128, 4, 2), (128, 128, 8, 2))
"""Queries and keys of a block, warps and pipeline stages, by a variant's ``rank``."""
_LARGEST_HEAD = 256
_LEAST_BLOCK = 16
"""Rows and columns of the smallest block that tensor cores take."""
_BY_POSITION = torch.ops.kernelllm.attention_by_position.default
_AS_IT_IS = torch.ops.kernelllm.attention_as_it_is.default
_TO = torch.ops.prims.convert_element_type.default


class Attention(Form):
    """Attention in half precision that is not causal."""

    name = "attention"

    def matches(self, traced: Traced) -> bool:
        """Whether there is one that becomes a kernel."""
        return any(_calls(traced.graph))

    def writes(self, graph: GraphModule, gpu: Gpu, variant: Variant) -> None:
        """Writes all of them as the operation that becomes a kernel."""
        for call in list(_calls(graph.graph)):
            given = call.query.meta["val"], call.key.meta["val"]
            rows, columns, warps, stages = _BLOCKS[variant.rank]
            rows = min(rows, max(_LEAST_BLOCK, _power(int(given[0].shape[2]))))
            columns = min(columns, max(_LEAST_BLOCK, _power(int(given[1].shape[2]))))
            with graph.graph.inserting_before(call.node):
                write = Writer(graph.graph)
                mask = None if call.mask is None else write(aten.expand.default, call.mask, _sizes(*given))
                block = [rows, columns, min(warps, max(4, rows // 16)), stages]
                result = write(_ATTENTION, call.query, call.key, call.value, mask, call.scale, block)
                if call.node.target is _AS_IT_IS:  # in the order in which the libraries write it
                    result = write(aten.permute.default, result, [0, 2, 1, 3])
            call.node.replace_all_uses_with(result)
        graph.graph.eliminate_dead_code()
        graph.recompile()


class _Call(NamedTuple):
    """A call of attention that becomes a kernel; ``mask`` is of booleans, or added to the scores."""

    node: Node
    query: Node
    key: Node
    value: Node
    mask: Node | None
    scale: float


def _calls(graph: Graph) -> Iterator[_Call]:
    for node in graph.nodes:
        if node.target not in (_BY_POSITION, _AS_IT_IS):
            continue
        query, key, value, *rest = node.args
        given = dict(zip(("attn_mask", "dropout_p", "is_causal"), rest, strict=False)) | node.kwargs
        if given.get("is_causal") or given.get("dropout_p") or not _has_kernel(query, key, value):
            continue
        mask, scale = given.get("attn_mask"), given.get("scale")
        scale = float(query.meta["val"].shape[-1]) ** -0.5 if scale is None else scale
        yield _Call(node, query, key, value, None if mask is None else _as_given(mask), float(scale))


def _has_kernel(*given: Node) -> bool:
    query, key, value = (node.meta["val"] for node in given)
    sizes = (*query.shape[1:], *key.shape[1:], *value.shape[1:])
    return (
        query.dim() == 4
        and query.dtype in (torch.bfloat16, torch.float16)
        and all(isinstance(size, int) for size in sizes)
        and query.shape[-1] == value.shape[-1] <= _LARGEST_HEAD
        and query.shape[1] % key.shape[1] == 0
    )


def _as_given(mask: Node) -> Node:
    """Returns the mask of booleans that an added one was made of, as ``library`` does it; another one is returned as it is."""
    made = mask.args[0] if mask.target is _TO else mask
    if isinstance(made, Node) and made.target is aten.where.self:
        given = made.args[0]
        if isinstance(given, Node) and _value(made.args[1]) == 0.0 and _value(made.args[2]) == -torch.inf:
            return given
    return mask


def _value(node: Any) -> Any:
    return node.args[1] if isinstance(node, Node) and node.target is aten.full.default else None


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _sizes(query: torch.Tensor, key: torch.Tensor) -> list[Any]:
    return [*query.shape[:3], key.shape[2]]


# --------------------------------------------------------------------------- the operation and its template


_LIBRARY = torch.library.Library("kernelllm", "FRAGMENT")
_LIBRARY.define(
    "attention_kernel(Tensor query, Tensor key, Tensor value, Tensor? mask, float scale, int[] block) -> Tensor"
)
_ATTENTION = torch.ops.kernelllm.attention_kernel.default
"""Queries are (batch, heads, length, size); the result is (batch, length, heads, size). The mask has all four sizes. ``block`` is
queries and keys of a block, warps and stages."""


def _fake(query: torch.Tensor, key: Any, value: Any, mask: Any, scale: float, block: Any) -> torch.Tensor:
    batch, heads, length, size = query.shape
    return query.new_empty((batch, length, heads, size))


torch.library.register_fake("kernelllm::attention_kernel", _fake, lib=_LIBRARY)


@lowering.register_lowering(_ATTENTION, type_promotion_kind=None)
def _lower(query: Any, key: Any, value: Any, mask: Any, scale: float, block: Any) -> Any:
    batch, heads, length, size = query.get_size()
    keys = key.get_size()[2]
    rows, columns, warps, stages = block
    given = [query, key, value] if mask is None else [query, key, value, mask]
    kind = "none" if mask is None else "chosen" if mask.get_dtype() is torch.bool else "added"
    choice = _template(kind).generate(
        tuple(map(ExternKernel.realize_input, given)),
        FixedLayout(query.get_device(), query.get_dtype(), [batch, length, heads, size]),
        num_stages=stages,
        num_warps=warps,
        BLOCK_M=rows,
        BLOCK_N=columns,
        BLOCK_D=max(_LEAST_BLOCK, _power(int(size))),
        SCALE=scale,
        SHARED=int(heads) // int(key.get_size()[1]),
        EVEN_M=int(length) % rows == 0,
        EVEN_N=int(keys) % columns == 0,
        EVEN_D=max(_LEAST_BLOCK, _power(int(size))) == int(size),
        ONE=int(keys) <= columns,
    )
    return choice.output_node()


@cache
def _template(mask: str) -> select_algorithm.TritonTemplate:
    """Returns the template for a kind of mask."""
    names = '"Q", "K", "V"' + ("" if mask == "none" else ', "MASK"')
    text = f"{{% set mask_kind = {mask!r} %}}" + _KERNEL.replace("NAMES", names)
    return select_algorithm.TritonTemplate(f"attention_{mask}", _grid, text)


@select_algorithm.SymbolicGridFn
def _grid(
    batch: int, length: int, heads: int, size: int, meta: Mapping[str, int], *, cdiv: Any
) -> tuple[int, int, int]:
    return cdiv(length, meta["BLOCK_M"]), batch * heads, 1


_KERNEL = """{% macro sum(name, terms) %}{% for axis, index in terms if stride(name, axis) != "0" %}{{" + " if not loop.first}}{{index}}{% if stride(name, axis) != "1" %} * {{stride(name, axis)}}{% endif %}{% else %}0{% endfor %}{% endmacro %}
{% macro load(name, terms, mask) %}tl.load({{name}} + base_{{name.lower()}} + {{sum(name, terms)}}{% if mask %}, mask={{mask}}, other=0{% endif %}){% endmacro %}
{% set in_rows = "" if EVEN_M else "in_m[:, None]" %}
{% set in_keys = "" if EVEN_N else "in_n" %}
{% macro both(one, other) %}{{one}}{{" & " if one and other}}{{other}}{% endmacro %}
{{def_kernel(NAMES)}}
    queries = {{size("Q", 2)}}
    keys = {{size("K", 2)}}
    idx_b = (tl.program_id(1) // {{size("Q", 1)}}).to(INDEX_DTYPE)
    idx_h = tl.program_id(1) % {{size("Q", 1)}}
    shared = idx_h{% if SHARED > 1 %} // SHARED{% endif %}

    idx_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    idx_d = tl.arange(0, BLOCK_D)
    {% if not EVEN_M %}
    in_m = idx_m < queries
    {% endif %}
    {% if not EVEN_D %}
    in_d = idx_d < {{size("Q", 3)}}
    {% endif %}
    {% set in_row = "" if EVEN_D else "in_d[None, :]" %}
    {% set in_column = "" if EVEN_D else "in_d[:, None]" %}
    base_q = {{sum("Q", [(0, "idx_b"), (1, "idx_h")])}}
    base_k = {{sum("K", [(0, "idx_b"), (1, "shared")])}}
    base_v = {{sum("V", [(0, "idx_b"), (1, "shared")])}}
    {% if mask_kind != "none" %}
    base_mask = {{sum("MASK", [(0, "idx_b"), (1, "idx_h")])}}
    {% endif %}
    q = {{load("Q", [(2, "idx_m[:, None]"), (3, "idx_d[None, :]")], both(in_rows, in_row))}}
    {% if not ONE %}
    highest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in range(0, keys, BLOCK_N):
        idx_n = start + tl.arange(0, BLOCK_N)
    {%- else %}
    if True:
        idx_n = tl.arange(0, BLOCK_N)
    {%- endif %}

        {% if not EVEN_N %}
        in_n = idx_n < keys
        {% endif %}
        k = {{load("K", [(2, "idx_n[None, :]"), (3, "idx_d[:, None]")], both("" if EVEN_N else "in_n[None, :]", in_column))}}
        scores = tl.dot(q, k) * SCALE
        {% if mask_kind != "none" %}
        given = {{load("MASK", [(2, "idx_m[:, None]"), (3, "idx_n[None, :]")], both(in_rows, "" if EVEN_N else "in_n[None, :]"))}}
        {% endif %}
        {% if mask_kind == "chosen" %}
        scores += tl.where(given, 0.0, float("-inf"))
        {% elif mask_kind == "added" %}
        scores += given
        {% endif %}
        {% if not EVEN_N %}
        scores = tl.where(in_n[None, :], scores, float("-inf"))
        {% endif %}
        {% if ONE %}
        top = tl.max(scores, 1)
        {% else %}
        top = tl.maximum(highest, tl.max(scores, 1))
        {% endif %}
        {% if mask_kind == "none" %}
        finite = top
        {% else %}
        finite = tl.where(top == float("-inf"), 0.0, top)
        {% endif %}
        weights = tl.exp(scores - finite[:, None])
        v = {{load("V", [(2, "idx_n[:, None]"), (3, "idx_d[None, :]")], both("" if EVEN_N else "in_n[:, None]", in_row))}}
        {% if ONE %}
        total = tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype), v)
        {% else %}
        shrunk = tl.exp(highest - finite)
        total = total * shrunk + tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrunk[:, None])
        highest = top
        {% endif %}
    {% if mask_kind != "none" %}
    total = tl.where(total == 0.0, 1.0, total)
    {% endif %}
    acc = acc / total[:, None]
    idx_m = idx_m[:, None]
    idx_d = idx_d[None, :]
    mask = {{both("" if EVEN_M else "(idx_m < queries)", "" if EVEN_D else "(idx_d < %s)" % size("Q", 3)) or "None"}}
    {{store_output(("idx_b", "idx_m", "idx_h", "idx_d"), "acc", "mask", val_shape=("BLOCK_M", "BLOCK_D"))}}
"""

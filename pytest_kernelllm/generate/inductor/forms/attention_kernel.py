"""The operation that attention becomes, and the template of its kernel.

A program reads a block of queries, and goes through the keys with a running maximum and sum (Milakov and Gimelshein,
https://arxiv.org/abs/1805.02867; Dao et al., https://arxiv.org/abs/2205.14135). Keys that a mask leaves out are read as well: NaN
comes through as in PyTorch. With ``used``, blocks of keys before the first and after the last one that a block of queries may look
at are passed over where these queries, and all keys and values, are finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._inductor import lowering, select_algorithm
from torch._inductor.ir import ExternKernel, FixedLayout

LEAST_BLOCK = 16
"""Rows and columns of the smallest block that tensor cores take."""

_LIBRARY = torch.library.Library("kernelllm", "FRAGMENT")
_LIBRARY.define(
    "attention_kernel(Tensor query, Tensor key, Tensor value, Tensor[] masks, Tensor[] used, float scale, bool safe,"
    " int[] block)"
    " -> Tensor"
)
ATTENTION = torch.ops.kernelllm.attention_kernel.default
"""Queries, keys and values are (batch, heads, length, size); the result is (batch, length, heads, size). Masks are of booleans or
added to the scores, (outer batch, inner batch, heads, queries, keys). ``used`` is empty or three tensors of booleans: which
blocks of keys have one that counts, (outer batch, inner batch, heads, blocks of queries, blocks of keys); which of them have a key
or a value that is not finite, (batch, heads, blocks of keys); and which blocks of queries have one that is not, (batch, heads,
blocks of queries). What may look at no key gives 0 where that is ``safe``, and else NaN. ``block`` is queries and keys of a block,
warps and stages."""


def block_of(length: int, most: int) -> int:
    """Returns the rows of a block for a length: a power of 2, no more than ``most``."""
    return min(most, max(LEAST_BLOCK, 1 << (length - 1).bit_length()))


def _fake(query: torch.Tensor, *_: Any) -> torch.Tensor:
    batch, heads, length, size = query.shape
    return query.new_empty((batch, length, heads, size))


torch.library.register_fake("kernelllm::attention_kernel", _fake, lib=_LIBRARY)


@lowering.register_lowering(ATTENTION, type_promotion_kind=None)
def _lower(
    query: Any,
    key: Any,
    value: Any,
    masks: Sequence[Any],
    used: Sequence[Any],
    scale: float,
    safe: bool,
    block: Sequence[int],
) -> Any:
    batch, heads, length, size = query.get_size()
    keys = key.get_size()[2]
    rows, columns, warps, stages = block
    width = block_of(int(size), 1 << 16)
    choice = _template(
        tuple("chosen" if each.get_dtype() is torch.bool else "added" for each in masks), bool(used)
    ).generate(
        tuple(map(ExternKernel.realize_input, (query, key, value, *masks, *used))),
        FixedLayout(query.get_device(), query.get_dtype(), [batch, length, heads, size]),
        num_stages=stages,
        num_warps=warps,
        BLOCK_M=rows,
        BLOCK_N=columns,
        BLOCK_D=width,
        SCALE=scale,
        SAFE=safe,
        SHARED=int(heads) // int(key.get_size()[1]),
        INNER=int(masks[0].get_size()[1]) if masks else 1,
        BLOCKS=-(-int(length) // rows),
        EVEN_M=int(length) % rows == 0,
        EVEN_N=int(keys) % columns == 0,
        EVEN_D=int(size) == width,
        ONE=int(keys) <= columns,
        PARTS=-(-int(keys) // columns),
        BLOCK_P=1 << (-(-int(keys) // columns) - 1).bit_length(),
    )
    return choice.output_node()


@cache
def _template(masks: tuple[str, ...], passing: bool) -> select_algorithm.TritonTemplate:
    """Returns the template for masks of these kinds, passing over blocks or not."""
    more = ("USED", "ODD_K", "ODD_Q") if passing else ()
    names = ", ".join(
        f'"{name}"' for name in ("Q", "K", "V", *(f"MASK{n}" for n in range(len(masks))), *more)
    )
    text = f"{{% set masks, passing = {list(masks)!r}, {passing} %}}" + _KERNEL.replace("NAMES", names)
    return select_algorithm.TritonTemplate("_".join(("attention", *masks, *more)), _grid, text)


@select_algorithm.SymbolicGridFn
def _grid(
    batch: int, length: int, heads: int, size: int, meta: Mapping[str, int], *, cdiv: Any
) -> tuple[int, int, int]:
    return cdiv(length, meta["BLOCK_M"]) * batch * heads, 1, 1  # only the first may be large


_KERNEL = """{% macro sum(name, terms) -%}
    {% for axis, index in terms if stride(name, axis) != "0" -%}
        {{" + " if not loop.first}}{{index}}{{" * " ~ stride(name, axis) if stride(name, axis) != "1"}}
    {%- else %}0{% endfor %}
{%- endmacro %}
{% macro load(name, terms, mask, base="base_%s + ") -%}
    tl.load({{name}} + {{base.replace("%s", name.lower())}}{{sum(name, terms)}}{{", mask=%s, other=0" % mask if mask}})
{%- endmacro %}
{% set in_rows = "" if EVEN_M else "in_m[:, None]" %}
{% set in_keys = "" if EVEN_N else "in_n[None, :]" %}
{% macro both(one, other) %}{{one}}{{" & " if one and other}}{{other}}{% endmacro %}
{{def_kernel(NAMES)}}
    queries = {{size("Q", 2)}}
    keys = {{size("K", 2)}}
    {% if BLOCKS > 1 %}
    matrix = tl.program_id(0) // BLOCKS
    {% else %}
    matrix = tl.program_id(0)
    {% endif %}
    idx_b = (matrix // {{size("Q", 1)}}).to(INDEX_DTYPE)
    idx_h = matrix % {{size("Q", 1)}}
    shared = idx_h{% if SHARED > 1 %} // SHARED{% endif %}

    idx_m = {{"tl.program_id(0) % BLOCKS * BLOCK_M + " if BLOCKS > 1}}tl.arange(0, BLOCK_M)
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
    {% if masks and INNER > 1 %}
    outer = idx_b // INNER
    inner = idx_b % INNER
    {% endif %}
    {% set batch = [(0, "outer"), (1, "inner")] if INNER > 1 else [(0, "idx_b")] %}
    {% set scores_at = [(3, "idx_m[:, None]"), (4, "idx_n[None, :]")] %}
    {% for kind in masks %}
    base_mask{{loop.index0}} = {{sum("MASK%d" % loop.index0, batch + [(2, "idx_h")])}}
    {% endfor %}
    q = {{load("Q", [(2, "idx_m[:, None]"), (3, "idx_d[None, :]")], both(in_rows, in_row))}}
    {% if not ONE %}
    highest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    {% if passing %}
    part = tl.arange(0, BLOCK_P)
    {% set in_part = "part < PARTS" if PARTS < BLOCK_P %}
    {% set used_at = batch + [(2, "idx_h"), (3, "tl.program_id(0) % BLOCKS"), (4, "part")] %}
    used = {{load("USED", used_at, in_part, "")}} != 0
    odd = tl.max({{load("ODD_K", [(0, "idx_b"), (1, "shared"), (2, "part")], in_part, "")}}.to(tl.int32), 0)
    odd += {{load("ODD_Q", [(0, "idx_b"), (1, "idx_h"), (2, "tl.program_id(0) % BLOCKS")], "", "")}}.to(tl.int32)
    used = used | {{"(odd > 0) & (%s)" % in_part if in_part else "(odd > 0)"}}
    first = tl.min(tl.where(used, part, PARTS - 1), 0)
    end = tl.maximum(tl.max(tl.where(used, part + 1, 0), 0), first + 1)
    for start in range(first * BLOCK_N, end * BLOCK_N, BLOCK_N):
        idx_n = start + tl.arange(0, BLOCK_N)
    {%- else %}
    for start in range(0, keys, BLOCK_N):
        idx_n = start + tl.arange(0, BLOCK_N)
    {%- endif %}

    {%- else %}
    if True:
        idx_n = tl.arange(0, BLOCK_N)
    {%- endif %}

        {% if not EVEN_N %}
        in_n = idx_n < keys
        {% endif %}
        k = {{load("K", [(2, "idx_n[None, :]"), (3, "idx_d[:, None]")], both(in_keys, in_column))}}
        scores = tl.dot(q, k) * SCALE
        {% for kind in masks %}
        given = {{load("MASK%d" % loop.index0, scores_at, both(in_rows, in_keys))}}
        {% if kind == "chosen" %}
        scores += tl.where(given, 0.0, float("-inf"))
        {% else %}
        scores += given
        {% endif %}
        {% endfor %}
        {% if not EVEN_N %}
        scores = tl.where(in_n[None, :], scores, float("-inf"))
        {% endif %}
        {% if ONE %}
        top = tl.max(scores, 1)
        {% else %}
        top = tl.maximum(highest, tl.max(scores, 1))
        {% endif %}
        {% if not masks or (ONE and not SAFE) %}
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
    {% if masks and SAFE %}
    total = tl.where(total == 0.0, 1.0, total)
    {% endif %}
    acc = acc / total[:, None]
    idx_m = idx_m[:, None]
    idx_d = idx_d[None, :]
    mask = {{both("" if EVEN_M else "(idx_m < queries)", "" if EVEN_D else "(idx_d < %s)" % size("Q", 3)) or "None"}}
    {{store_output(("idx_b", "idx_m", "idx_h", "idx_d"), "acc", "mask", val_shape=("BLOCK_M", "BLOCK_D"))}}
"""

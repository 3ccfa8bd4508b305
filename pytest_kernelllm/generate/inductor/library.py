"""Custom operations that stand in a traced graph for calls that stay with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._inductor.decomposition import select_decomp_table

_LIBRARY = torch.library.Library("kernelllm", "FRAGMENT")
for _name in ("attention", "attention_by_position", "attention_as_it_is"):
    _LIBRARY.define(
        f"{_name}(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0,"
        " bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor"
    )


@torch.library.register_fake("kernelllm::attention", lib=_LIBRARY)
def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    """Returns an output like attention's, contiguous."""
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


@torch.library.register_fake("kernelllm::attention_by_position", lib=_LIBRARY)
def _attention_by_position(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    """Returns the output as (batch, length, heads, size), the order in which a GPU writes it."""
    batch, heads, length, _ = query.shape
    return query.new_empty((batch, length, heads, value.shape[-1]))


def _traced_attention(query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if query.dim() == 4:
        result: torch.Tensor = torch.ops.kernelllm.attention_by_position(query, *args, **kwargs).transpose(
            1, 2
        )
        return result
    return torch.ops.kernelllm.attention(query, *args, **kwargs)  # type: ignore[no-any-return]  # an operation of ours


@torch.library.register_fake("kernelllm::attention_as_it_is", lib=_LIBRARY)
def _attention_as_it_is(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    """Returns the output with the strides that attention gives it, which only a caller may see."""
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def keep_strides(graph: torch.fx.Graph) -> None:
    """Makes the graph return attention's output with its own strides if nothing else reads it."""
    for node in list(graph.nodes):
        if str(node.target) not in ("kernelllm.attention.default", "kernelllm.attention_by_position.default"):
            continue
        last = node if node.target is torch.ops.kernelllm.attention.default else next(iter(node.users))
        if len(node.users) == 1 and [user.op for user in last.users] == ["output"]:
            node.target = torch.ops.kernelllm.attention_as_it_is.default
            node.meta["val"] = _attention(*(arg.meta["val"] for arg in node.args[:3]))
            if last is not node:
                last.replace_all_uses_with(node)
                graph.erase_node(last)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Returns the decompositions that Inductor uses for a GPU, except for the operations above.

    By default torch.export decomposes attention as the CPU's kernels compute it.
    """
    aten = torch.ops.aten
    table = dict(select_decomp_table())
    table[aten.scaled_dot_product_attention.default] = _traced_attention
    for operation in (aten.upsample_nearest2d.vec, aten.upsample_bilinear2d.vec):
        if operation in decomposition_table:  # torch.export keeps them whole otherwise
            table.setdefault(operation, decomposition_table[operation])
    return table


def drops_out(node: torch.fx.Node) -> bool:
    """Whether a node is attention with dropout."""
    attention = getattr(node.target, "namespace", "") == "kernelllm"
    return attention and (node.args[4:5] or (node.kwargs.get("dropout_p", 0.0),))[0] != 0.0

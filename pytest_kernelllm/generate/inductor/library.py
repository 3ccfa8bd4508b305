"""Attention, which stays a call of PyTorch in a kernel module, and everything else, which is taken apart as for a GPU.

Left to itself torch.export takes attention apart by the kernels of the CPU that it traces on. Here it becomes one of these
operations, which the renderer writes as ``torch.nn.functional.scaled_dot_product_attention``:

- ``kernelllm::attention_by_position``: the output as (batch, length, heads, size), the order in which attention on a GPU writes it;
- ``kernelllm::attention``: the output contiguous, for inputs of other ranks than four;
- ``kernelllm::attention_as_it_is``: the output with whatever strides it has, where it is returned.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._inductor.decomposition import select_decomp_table
from torch.export import exported_program

_DECOMPOSE = {"ep", "cia_to_decomp", "python_decomp_table", "joint_loss_index", "decompose_custom_triton_ops"}
_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
_LIBRARY = torch.library.Library("kernelllm", "FRAGMENT")


def _shape(query: torch.Tensor, value: torch.Tensor) -> Sequence[int]:
    return (*query.shape[:-1], value.shape[-1])


def _contiguous(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    return query.new_empty(_shape(query, value))


def _by_position(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    batch, heads, length, size = _shape(query, value)
    return query.new_empty((batch, length, heads, size))


for _name, _fake in (
    ("attention", _contiguous),
    ("attention_by_position", _by_position),
    ("attention_as_it_is", _contiguous),
):
    _LIBRARY.define(
        f"{_name}(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0,"
        " bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor"
    )
    torch.library.register_fake(f"kernelllm::{_name}", _fake, lib=_LIBRARY)


def attention_in_order() -> contextlib.AbstractContextManager[None]:
    """Inside, attention is traced with the strides that it has in ``decomposed``, but as PyTorch's own operation.

    The CPU's attention writes in its query's order. Traced like that, ``contiguous`` after it might leave no operation, and
    a ``view`` of that would be impossible, or an output in another order, once attention is one of those above.
    """
    override = getattr(exported_program, "_override_composite_implicit_decomp", None)
    if override is None:
        return contextlib.nullcontext()
    inside: contextlib.AbstractContextManager[None] = override({_ATTENTION: _traced_attention})
    return inside


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Decomposes a program for TorchInductor, except for attention, which becomes an operation above."""
    aten = torch.ops.aten
    table = {key: value for key, value in decompositions().items() if key is not _ATTENTION}
    kept = {_ATTENTION: _traced_attention}
    result: torch.export.ExportedProgram
    decompose = getattr(exported_program, "_decompose_exported_program", None)
    if decompose is None or inspect.signature(decompose).parameters.keys() != _DECOMPOSE:
        for operation in (aten.upsample_nearest2d.vec, aten.upsample_bilinear2d.vec):  # kept whole otherwise
            table.setdefault(operation, decomposition_table[operation])
        result = program.run_decompositions({**table, **kept})
        return result
    # What run_decompositions calls itself, after it has looked at every operation that there is.
    result = decompose(
        program,
        cia_to_decomp=kept,
        python_decomp_table=table,
        joint_loss_index=None,
        decompose_custom_triton_ops=False,
    )
    return result


def decompositions() -> dict[Any, Any]:
    """Returns how TorchInductor takes operations apart; norms keep their statistics as on a GPU."""
    table: dict[Any, Any] = dict(select_decomp_table())
    for norm in (torch.ops.aten.native_layer_norm.default, torch.ops.aten._native_batch_norm_legit.no_stats):
        table[norm] = _in_float32(table[norm])
    return table


def _in_float32(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps a norm's mean and deviation in float32 for the backward pass. On a CPU, PyTorch rounds them to the inputs' dtype."""

    def norm(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        out, *statistics = decomposition(wide, *args, **kwargs)
        return (out.to(x.dtype), *statistics)

    return norm


def _traced_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        # As PyTorch does itself, in three kernels.
        attn_mask = torch.where(attn_mask, 0.0, -torch.inf).to(query.dtype)
    if query.dim() == 4:
        given = (query, key, value, attn_mask, *args)
        return torch.ops.kernelllm.attention_by_position(*given, **kwargs).transpose(1, 2)
    return torch.ops.kernelllm.attention(query, key, value, attn_mask, *args, **kwargs)


def keep_strides(graph: torch.fx.Graph) -> None:
    """Makes the graph return attention's output with its own strides if nothing else reads it."""
    contiguous, by_position = (
        torch.ops.kernelllm.attention.default,
        torch.ops.kernelllm.attention_by_position.default,
    )
    for node in list(graph.nodes):
        if node.target not in (contiguous, by_position):
            continue
        last = node if node.target is contiguous else next(iter(node.users))  # where it is transposed back
        if len(node.users) == 1 and [user.op for user in last.users] == ["output"]:
            node.target = torch.ops.kernelllm.attention_as_it_is.default
            node.meta["val"] = _contiguous(*(argument.meta["val"] for argument in node.args[:3]))
            if last is not node:
                last.replace_all_uses_with(node)
                graph.erase_node(last)


def drops_out(node: torch.fx.Node) -> bool:
    """Whether a node is attention that drops some of its weights at random."""
    if getattr(node.target, "namespace", "") != "kernelllm":
        return False
    given: Any = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
    return bool(given)

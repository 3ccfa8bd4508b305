# ruff: noqa: SIM905 (words are easier to read and to sort than quoted strings)
"""Records what one call of the original does, and which torch operations do work that belongs into a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.shared import leaves
from kernelllm_judge.shared.leaves import flatten
from kernelllm_judge.shared.watch import ALLOCATING, OperationWatch
from kernelllm_judge.truth.prepared import PreparedProbe


@dataclass(frozen=True)
class OriginalCall:
    """What one call of the original did."""

    shared: list[list[str]]
    """Pairs of names whose memory overlaps, see ``leaves.shared``."""
    operations: Mapping[str, int]
    """Elements that each of torch's operations touched, by its name."""
    held: int
    """Bytes of memory that the outputs keep alive, see ``leaves.held``."""
    largest: int
    """Elements of the largest input or output."""


def call_original(prepared: PreparedProbe) -> OriginalCall:
    """Calls the original with a prepared probe and records what it does."""
    module, arguments = prepared.callable_module(), prepared.arguments
    with torch.no_grad(), OperationWatch(guarded=False) as watch:
        outputs = flatten(module(**nested(arguments)))[1]
    named: dict[str, Any] = {f"self.{k}": v for k, v in module.named_parameters()}
    named |= {f"self.{k}": v for k, v in module.named_buffers()} | arguments
    tensors = [t for t in (*arguments.values(), *outputs) if isinstance(t, torch.Tensor)]
    return OriginalCall(
        leaves.shared(outputs, named),
        dict(watch.elements),
        leaves.held(outputs, named),
        max((t.numel() for t in tensors), default=0),
    )


LAYOUT = ALLOCATING | frozenset(
    f"aten::{name}"
    for name in """
        _local_scalar_dense _reshape_alias _to_copy _unsafe_view alias arange as_strided clone copy_ detach
        detach_ diagonal expand fill_ item lift_fresh permute real reshape resize_ scalar_tensor select set_
        slice split split_with_sizes squeeze squeeze_ t transpose unbind unfold unsqueeze unsqueeze_ view
        view_as_complex view_as_real zero_
    """.split()
)
"""Views, allocation, fills, casts and changes of layout: allowed at any size."""

VENDOR = {
    "gemm": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::dot", "aten::mv", "aten::addmv"),
    "convolution": ("aten::convolution", "aten::cudnn_convolution", "aten::mkldnn_convolution"),
    "attention": ("aten::_scaled_dot_product", "aten::_flash_attention", "aten::_efficient_attention"),
    "lookup": ("aten::embedding",),
    "sort": ("aten::sort", "aten::topk"),
}
"""Work that vendor libraries do, by kind; the entries are prefixes of operation names."""


FUSED = {
    "aten::_native_multi_head_attention": ("gemm", "attention"),
    "aten::_transformer_encoder_layer_fwd": ("gemm", "attention"),
    "aten::_cudnn_rnn": ("gemm",),
    "aten::mkldnn_rnn_layer": ("gemm",),
}
"""Whole layers that torch runs as one operation, and the kinds of vendor library work inside them."""


def vendor_kinds(ops: Mapping[str, int]) -> frozenset[str]:
    """Returns the kinds of vendor library work among these operations."""
    kinds = {kind for op in ops if (kind := _kind(op))}
    return frozenset(kinds.union(*(inside for op, inside in FUSED.items() if op in ops)))


def torch_work(operations: Mapping[str, int], allowed_kinds: frozenset[str]) -> dict[str, int]:
    """Returns the operations that compute something, without layout changes and allowed vendor library work.

    Args:
        operations: elements that each operation of one call touched.
        allowed_kinds: kinds of work that the target itself leaves to vendor libraries.
    """
    return {
        op: n for op, n in operations.items() if op not in LAYOUT and _kind(op) not in allowed_kinds and n
    }


def _kind(op: str) -> str:
    return next((kind for kind, starts in VENDOR.items() if op.startswith(starts)), "")

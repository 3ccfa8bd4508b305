"""Finds the torch operations in a call that do work which belongs into a kernel."""

from __future__ import annotations

from collections.abc import Mapping

from kernelllm_judge.shared.watch import ALLOCATING

LAYOUT = ALLOCATING | frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense",
        "_reshape_alias",
        "_to_copy",
        "_unsafe_view",
        "alias",
        "arange",
        "as_strided",
        "clone",
        "copy_",
        "detach",
        "detach_",
        "diagonal",
        "expand",
        "fill_",
        "item",
        "lift_fresh",
        "permute",
        "real",
        "reshape",
        "resize_",
        "scalar_tensor",
        "select",
        "set_",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "squeeze_",
        "t",
        "transpose",
        "unbind",
        "unfold",
        "unsqueeze",
        "unsqueeze_",
        "view",
        "view_as_complex",
        "view_as_real",
        "zero_",
    )
)
"""Views, allocation, fills, casts and changes of layout: allowed at any size."""

VENDOR = {
    "gemm": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::dot", "aten::mv", "aten::addmv"),
    "convolution": ("aten::convolution", "aten::cudnn_convolution", "aten::mkldnn_convolution"),
    "attention": ("aten::_scaled_dot_product", "aten::_flash_attention", "aten::_efficient_attention"),
    "lookup": ("aten::embedding",),
    "sort": ("aten::sort",),
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

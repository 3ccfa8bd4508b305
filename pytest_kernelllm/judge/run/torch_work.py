"""How much of a call's work torch does, and how much of that is allowed. ``docs/trust.md`` says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.shared.watch import ALLOCATING, Watch

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
"""Views, allocation, fills, casts and changes of layout: free at any size."""

VENDOR = {
    "gemm": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::dot", "aten::mv", "aten::addmv"),
    "convolution": ("aten::convolution", "aten::cudnn_convolution", "aten::mkldnn_convolution"),
    "attention": ("aten::_scaled_dot_product", "aten::_flash_attention", "aten::_efficient_attention"),
    "lookup": ("aten::embedding",),
}
"""Work that a vendor's library does, by kind; the entries are beginnings of operations' names."""

LEAST = 16
"""Elements that glue may touch in any call, however small."""


def vendor_kinds(ops: Mapping[str, int]) -> frozenset[str]:
    """Which kinds of vendor's work are among these operations."""
    return frozenset(kind for op in ops if (kind := _kind(op)))


def operations(module: torch.nn.Module, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Torch's operations in one call of the original, with the elements they touch."""
    with torch.no_grad(), Watch(guarded=False) as watch:
        module(**arguments)
    return dict(watch.elements)


def share(
    ops: Mapping[str, int], allowed_kinds: frozenset[str], elements: int, policy: Policy
) -> tuple[float, str]:
    """Elements that torch computes on beyond layout and permitted vendor's work, as a share of ``elements``.

    Args:
        ops: operations of one call of the candidate.
        allowed_kinds: vendor's work that the target itself leaves to libraries.
        elements: of the call's largest input or output.
        policy: ``torch_share`` is the limit.

    Returns:
        The share, and, where it is too large, what makes it so.
    """
    work = {op: n for op, n in ops.items() if op not in LAYOUT and _kind(op) not in allowed_kinds and n}
    total = sum(work.values())
    measured = total / max(elements, 1)
    if total <= max(policy.torch_share * elements, LEAST):
        return measured, ""
    largest = sorted(work, key=lambda op: -work[op])[:3]
    named = ", ".join(f"{op.removeprefix('aten::')} on {work[op]:,} elements" for op in largest)
    return measured, f"torch does the work: {named}, of {elements:,} in the call"


def _kind(op: str) -> str:
    return next((kind for kind, starts in VENDOR.items() if op.startswith(starts)), "")

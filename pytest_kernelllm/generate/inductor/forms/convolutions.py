"""Convolutions as kernels from TorchInductor's templates; those of float32 on tensor cores, in a loop of one dimension.

The templates go through the kernel's positions, and at each through blocks of channels. With few channels such a block is nearly
empty: 3 of the 16 that ``tl.dot`` takes at least. In one dimension blocks are full, and the weights of an output channel lie side by
side, so that the summed dimension is innermost, as TF32 needs it (see ``products``), in the layout that PyTorch's weights have. With
many channels, inputs and weights are copied with channels innermost instead, as accesses then read several at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm_judge.core.records import Domain
from kernelllm_runtime.pins.settings import CONVOLUTION_PRECISION
from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.forms.form import (
    TF32_PAYS,
    Form,
    Traced,
    Writer,
    aten,
    convolution_arguments,
    convolutions,
    laid_out_as,
    rewrite,
    with_two_dimensions,
)
from pytest_kernelllm.generate.inductor.forms.products import float32_templates, with_precision
from pytest_kernelllm.generate.inductor.variants import Variant

FEWEST_CHANNELS = 16
"""``tl.dot`` takes no fewer; most of a block would be empty."""
_WARPS = 4
"""Most warps that Inductor gives these templates."""

_LOOP = re.compile(r"    BLOCK_K_COUNT = .*?\n +acc \+= tl\.dot\([^\n]*\n", re.DOTALL)
_SIZE = r"^    {} : tl\.constexpr = (\d+)$"
_STRIDE = r"^    stride_{} = (\d+)$"


class Convolutions(Form):
    """Convolutions without dilation as kernels, for modules of which nothing else would be left, and for what comes after them.

    One-dimensional ones get a second dimension of size 1, and transposed ones without strides become plain ones.
    """

    name = "convolutions"

    def matches(self, traced: Traced) -> bool:
        """Whether there is one, as a kernel or not."""
        return bool(convolutions(traced.graph))

    def writes(self, graph: GraphModule, gpu: Gpu, variant: Variant) -> None:
        """Writes those for which Inductor has no template in another way."""
        rewrite(
            graph,
            [aten.convolution.default],
            lambda write, node: _convolution(write, node, variant.channels_innermost),
        )


class Float32Convolutions(Convolutions):
    """Float32 convolutions on tensor cores, in one product in TF32 where the settings allow it for them, else in parts.

    They win on KernelBench's 1/50 (1.87), 1/54 (2.52), 1/56 (1.72), 1/59 (2.74), 1/60 (4.75), 1/63 (2.09), 1/67 (1.52), 1/87 (1.62),
    2/6 (1.56), 2/23 (1.66), 2/24 (1.99), 2/27 (2.48), 2/48 (1.66), 2/57 (1.36), 2/69 (1.36), 2/71 (1.31), 2/79 (1.50) and others; with
    channels innermost on 1/55 (1.12), 1/56, 1/62 (1.26), 2/43 (1.38), 2/47 (1.31) and 2/77 (2.19).
    """

    name = "float32 convolutions"

    def matches(self, traced: Traced) -> bool:
        """Whether there is one, and tensor cores are that much faster."""
        found = (node.meta["val"].dtype for node in convolutions(traced.graph))
        return traced.gpu.tf32 > TF32_PAYS and torch.float32 in found

    def finishes(self, source: str, domain: Domain, variant: Variant) -> str:
        """Writes the loop of each template in one dimension, and its products in TF32 or in parts."""
        tf32 = CONVOLUTION_PRECISION in domain.attributes
        return float32_templates(source, lambda text: _on_tensor_cores(text, tf32))


def only_configuration(blocks: Sequence[int]) -> Callable[..., Any]:
    """Returns what replaces ``InductorChoices.get_conv_configs``: the templates' only configuration.

    Args:
        blocks: see ``Variant.convolution_blocks``; a block has no more channels than the next power of two, of all groups together.
    """
    positions, most, length, stages = blocks

    def one(rows: Any, channels: int, *_: Any, **__: Any) -> list[SimpleNamespace]:
        columns = min(most, max(16, 1 << (channels - 1).bit_length()))
        named = {"BLOCK_M": positions, "BLOCK_N": columns, "BLOCK_K": length}
        return [SimpleNamespace(kwargs=named, num_warps=_WARPS, num_stages=stages)]

    return lambda choices, device_type=None: one


def _on_tensor_cores(kernel: str, tf32: bool) -> str:
    """Rewrites a convolution's template. TF32 needs weights whose summed dimension is innermost."""
    if "stride_wc_in = " not in kernel:
        return kernel
    rewritten = _in_one_dimension(kernel)
    if rewritten != kernel or "stride_wc_in = 1\n" in kernel:
        return with_precision(rewritten, "tf32" if tf32 else "tf32x3")
    return with_precision(rewritten, "bf16x3" if tf32 else "bf16x6")


def _in_one_dimension(kernel: str) -> str:
    """Returns a template's kernel with its loop in one dimension, if the weights of an output channel lie side by side."""
    found = _LOOP.search(kernel)
    axes = [axis for axis in "DHW" if _number(_SIZE, f"KERNEL_{axis}", kernel)]
    if not found or not _side_by_side(kernel, axes):
        return kernel
    return kernel[: found.start()] + _loop(kernel, axes) + kernel[found.end() :]


def _side_by_side(kernel: str, axes: Sequence[str]) -> bool:
    """Whether the weights of one output channel are contiguous: channels outside, then the positions."""
    step = 1
    for axis in reversed(axes):
        if _number(_STRIDE, f"w{axis.lower()}", kernel) != step:
            return False
        step *= _number(_SIZE, f"KERNEL_{axis}", kernel) or 0
    return _number(_STRIDE, "wc_in", kernel) == step


def _loop(kernel: str, axes: Sequence[str]) -> str:
    """Writes the loop. Positions outside the image are masked out only where there may be such."""
    positions = " * ".join(f"KERNEL_{axis}" for axis in axes)
    names = [axis.lower() for axis in axes]
    corner = " + ".join(
        f"(idx_y_{n} * STRIDE_{n.upper()} - PADDING_{n.upper()}) * stride_x{n}" for n in names
    )
    lines = [
        f"LENGTH = GROUP_IN_C * {positions}",
        f"x_corner = x_base + ({corner})[:, None]",
        "for start in range(0, LENGTH, BLOCK_K):",
        "    idx_k = start + tl.arange(0, BLOCK_K).to(INDEX_DTYPE)",
    ]
    inside = []
    for index, (name, axis) in enumerate(zip(names, axes, strict=True)):
        inner = " * ".join(f"KERNEL_{each}" for each in axes[index + 1 :])
        divided = f"idx_k // ({inner})" if inner else "idx_k"
        lines.append(f"    idx_k_{name} = {divided} % KERNEL_{axis}")
        if _number(_SIZE, f"PADDING_{axis}", kernel):
            lines.append(
                f"    idx_x_{name} = (idx_y_{name} * STRIDE_{axis} - PADDING_{axis})[:, None] + idx_k_{name}[None, :]"
            )
            inside += [f"(idx_x_{name} >= 0)", f"(idx_x_{name} < IN_{axis})"]
    offsets = " + ".join(f"idx_k_{name} * stride_x{name}" for name in names)
    mask = " & ".join(["(idx_n < BATCH)[:, None]", "(idx_k < LENGTH)[None, :]", *inside])
    lines += [
        f"    x_ptrs = x_corner + (idx_k // ({positions}) * stride_xc + {offsets})[None, :]",
        f"    matrix_x = tl.load(x_ptrs, mask={mask}, other=0.0)",
        "    mask_w = (idx_k < LENGTH)[:, None] & (idx_y_c < GROUP_OUT_C)[None, :]",
        "    matrix_w = tl.load(w_base + idx_k[:, None], mask=mask_w, other=0.0)",
        "    acc += tl.dot(matrix_x, matrix_w, input_precision=PRECISION)",
    ]
    return "".join(f"    {line}\n" for line in lines)


def _number(pattern: str, name: str, kernel: str) -> int | None:
    """Returns a number that the kernel's text states; None if it states none."""
    found = re.search(pattern.format(name), kernel, re.MULTILINE)
    return int(found[1]) if found else None


def _convolution(write: Writer, node: Node, innermost: bool) -> Node | None:
    """Rewrites a one-dimensional convolution, a transposed one without strides, and one whose channels shall be innermost."""
    _, _, _, strides, _, dilation, transposed, *_ = convolution_arguments(node)
    dilated = any(step != 1 for step in dilation)  # of which Inductor's templates know nothing
    if is_spread(node) or (not transposed and (dilated or not (len(strides) == 1 or innermost))):
        return None
    one, [x, weight, bias, strides, padding, dilation, _, more, groups] = with_two_dimensions(write, node)
    if transposed:
        weight, padding, more = _turned(write, weight, groups), _before(weight, padding), [0] * len(more)
    if innermost and weight.meta["val"].shape[1] >= FEWEST_CHANNELS:
        order = torch.channels_last if len(strides) == 2 else torch.channels_last_3d
        x, weight = (write(aten.clone.default, each, memory_format=order) for each in (x, weight))
    result = write(aten.convolution.default, x, weight, bias, strides, padding, dilation, False, more, groups)
    return laid_out_as(write, node, result, one)


def is_spread(node: Node) -> bool:
    """Whether a convolution is a transposed one that no plain one computes: with strides, dilation or a larger padding."""
    _, weight, _, strides, padding, dilation, transposed, *_ = convolution_arguments(node)
    spread = any(step != 1 for step in (*strides, *dilation))
    return bool(transposed) and (spread or min(_before(weight, padding)) < 0)


def _before(weight: Any, padding: Any) -> list[int]:
    """Returns the padding of the plain convolution that computes what a transposed one with this weight computes."""
    sizes = weight.meta["val"].shape[2:]
    return [size - 1 - pad for size, pad in zip(sizes, padding, strict=True)]


def _turned(write: Writer, weight: Any, groups: int) -> Node:
    """Returns the weight with which a plain convolution computes what a transposed one computes with this weight."""
    channels, each, *kernel = weight.meta["val"].shape
    axes = range(2, 2 + len(kernel))
    grouped = write(aten.reshape.default, weight, [groups, channels // groups, each, *kernel])
    swapped = write(aten.permute.default, grouped, [0, 2, 1, *(axis + 1 for axis in axes)])
    joined = write(aten.reshape.default, swapped, [groups * each, channels // groups, *kernel])
    return write(torch.ops.prims.rev.default, joined, list(axes))

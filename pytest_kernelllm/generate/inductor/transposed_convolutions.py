"""Transposed convolutions with strides or dilation, for which TorchInductor has no template: an operation that becomes a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import torch
from torch._inductor import ir, lowering, select_algorithm
from torch._inductor.utils import convert_shape_to_inductor
from torch._inductor.virtualized import V
from torch.fx import Node

from pytest_kernelllm.generate.inductor.transposed_kernel import Axis, Form, kernel_text

_LIBRARY = torch.library.Library("kernelllm", "FRAGMENT")
_LIBRARY.define(
    "transposed_convolution(Tensor x, Tensor weight, int[] kernel, int[] stride, int[] padding, int[] dilation,"
    " int[] output_padding, int[] block) -> Tensor"
)
TRANSPOSED = torch.ops.kernelllm.transposed_convolution.default
"""As ``torch.nn.functional.conv_transpose2d`` and ``conv_transpose3d``, with the weight as (groups, taps, a group's channels of the
input, and of the result). ``block`` is positions, channels and length of a block, and the pipeline stages."""

BLOCKS = ((64, 64, 32, 2), (128, 64, 32, 2), (256, 64, 16, 3), (64, 128, 32, 2))
"""By a variant's ``TEMPLATE``: positions, channels and length of a block, and the pipeline stages."""

FEWEST_CHANNELS = 16
"""``tl.dot`` takes no fewer; most of a block would be empty."""
_WARPS = 4

aten = torch.ops.aten


def has_kernel(node: Node) -> bool:
    """Whether a transposed convolution can be written as the operation that becomes a kernel.

    Sums are in float32, the weight's sizes are fixed, and there is more than one output: Inductor stores to an address that is
    constant without a mask, from all of a block.
    """
    x, weight = (cast(Node, each).meta["val"] for each in node.args[:2])
    result = node.meta["val"]
    return (
        result.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and x.dim() == weight.dim()
        and all(isinstance(size, int) for size in weight.shape)
        and result.numel() != 1
    )


def transposed_convolution(
    write: Callable[..., Node],
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    block: Sequence[int],
) -> Node:
    """Writes a transposed convolution of two or three dimensions as the operation that becomes a kernel.

    Args:
        write: adds an operation to a graph.
        x, weight, bias, stride, padding, dilation, output_padding, groups: as ``torch.nn.functional.conv_transpose2d`` takes them.
        block: positions, channels and length of a block, and the pipeline stages.
    """
    channels, each, *kernel = weight.meta["val"].shape
    grouped = write(aten.reshape.default, weight, [groups, channels // groups, each, math.prod(kernel)])
    packed = write(aten.permute.default, grouped, [0, 3, 1, 2])
    options = (kernel, stride, padding, dilation, output_padding, block)
    result = write(TRANSPOSED, x, packed, *map(list, options))
    if bias is None:
        return result
    return write(aten.add.Tensor, result, write(aten.reshape.default, bias, [-1, *[1] * len(kernel)]))


def _fake(
    x: torch.Tensor,
    weight: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    output_padding: list[int],
    block: list[int],
) -> torch.Tensor:
    groups, _, length, each = weight.shape
    original = x.new_empty(groups * length, each, *kernel)
    result: torch.Tensor = aten.convolution.default(
        x, original, None, stride, padding, dilation, True, output_padding, groups
    )
    return result


torch.library.register_fake("kernelllm::transposed_convolution", _fake, lib=_LIBRARY)


@lowering.register_lowering(TRANSPOSED, type_promotion_kind=None)
def _lower(
    x: Any,
    weight: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    block: Sequence[int],
) -> Any:
    groups, _, length, each = (int(size) for size in weight.get_size())
    axes = tuple(map(Axis, "DHW"[-len(kernel) :], kernel, stride, padding, dilation))
    dot = length >= FEWEST_CHANNELS
    if dot:  # channels innermost
        x = ir.ExternKernel.require_stride_order(x, [len(axes) + 1, 0, *range(len(axes), 0, -1)])
        weight = ir.ExternKernel.require_stride_order(weight, [3, 1, 0, 2])
    else:
        x = ir.ExternKernel.realize_input(x)
        weight = ir.ExternKernel.require_contiguous(weight)
    layout = _layout(x, weight, kernel, stride, padding, dilation, output_padding, block)
    form = Form(axes, dot, groups > 1, _leaves_out(axes, x.get_size()[2:], layout.size[2:]))
    positions, most, depth, stages = block
    numbers: dict[str, Any] = {f"KERNEL_{axis.name}": axis.kernel for axis in axes}
    numbers |= {f"STRIDE_{axis.name}": axis.stride for axis in axes}
    if dot:
        numbers |= {"ALLOW_TF32": False, "BLOCK_K": min(depth, 1 << (length - 1).bit_length())}
    choice = _template(form).generate(
        (x, weight),
        layout,
        num_stages=stages,
        num_warps=_WARPS,
        **numbers,
        GROUPS=groups,
        BLOCK_M=positions,
        BLOCK_N=min(most, max(FEWEST_CHANNELS, 1 << (each - 1).bit_length())),
        OUT_M=positions * len(form.totals),
    )
    return choice.output_node()


def _leaves_out(axes: Sequence[Axis], inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether outputs may have taps of which none reads an input; it may be so where sizes are not fixed."""
    sizes = list(zip(axes, inputs, outputs, strict=True))
    fixed = all(size.is_Integer for _, *both in sizes for size in both)
    return not fixed or any(axis.leaves_out(int(read), int(written)) for axis, read, written in sizes)


def _layout(x: Any, weight: Any, *options: Any) -> ir.Layout:
    with V.graph.fake_mode:
        result = TRANSPOSED(ir.ir_node_to_tensor(x), ir.ir_node_to_tensor(weight), *options)
    sizes, strides = (convert_shape_to_inductor(each) for each in (result.size(), result.stride()))
    return ir.FixedLayout(x.get_device(), x.get_dtype(), sizes, strides)


@select_algorithm.SymbolicGridFn
def _grid(batch: Any, channels: Any, *sizes_and_meta: Any, cdiv: Any) -> tuple[Any, Any, int]:
    *sizes, meta = sizes_and_meta
    positions, remainders = batch, 1
    for axis, size in zip("DHW"[-len(sizes) :], sizes, strict=True):
        positions *= cdiv(size, meta[f"STRIDE_{axis}"])
        remainders *= meta[f"STRIDE_{axis}"]
    together = meta["OUT_M"] // meta["BLOCK_M"]
    blocks = remainders // together * cdiv(positions, meta["BLOCK_M"])
    return blocks, cdiv(channels // meta["GROUPS"], meta["BLOCK_N"]), meta["GROUPS"]


@cache
def _template(form: Form) -> select_algorithm.TritonTemplate:
    numbers = [n for a in form.axes for n in (a.kernel, a.stride, a.padding, a.dilation)]
    name = "_".join(map(str, ["transposed", *numbers, *map(int, (form.dot, form.grouped, form.leaves_out))]))
    return select_algorithm.TritonTemplate(name, _grid, kernel_text(form))

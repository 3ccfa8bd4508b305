"""Transposed convolutions with strides, for which TorchInductor has no template: an operation that becomes a kernel of our own.

Divided by the stride, the positions of outputs leave a remainder. Those that leave the same one read the same taps of the kernel, so
that they are a plain convolution. A program computes outputs of one remainder in each dimension, and programs for the others run next
to it. In the last dimension, whose stride is 2, it computes both, and stores outputs that lie side by side.

Where there are many channels, ``tl.dot`` multiplies blocks of them with the weights. Where there are few, most of such a block would
be empty: one channel is read at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
import torch
from torch._inductor import ir, lowering, select_algorithm
from torch._inductor.utils import convert_shape_to_inductor
from torch._inductor.virtualized import V
from torch.fx import GraphModule, Node

from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.forms import form
from pytest_kernelllm.generate.inductor.forms.convolutions import FEWEST_CHANNELS, is_spread
from pytest_kernelllm.generate.inductor.variants import Variant

_LIBRARY = torch.library.Library("kernelllm", "FRAGMENT")
_LIBRARY.define(
    "transposed_convolution(Tensor x, Tensor weight, int[] kernel, int[] stride, int[] padding, int[] output_padding,"
    " int[] block) -> Tensor"
)
_TRANSPOSED = torch.ops.kernelllm.transposed_convolution.default
"""As ``torch.nn.functional.conv_transpose2d`` and ``conv_transpose3d``, with the weight as (groups, taps, a group's channels of the
input, and of the result). ``block`` is positions, channels and length of a block, and the pipeline stages."""

_BLOCKS = ((64, 64, 32, 2), (128, 64, 32, 2), (256, 64, 16, 3), (64, 128, 32, 2))
"""By ``Variant.rank``: positions, channels and length of a block, and the pipeline stages."""
_WARPS = 4
_LAST = 2
"""The last dimension's stride."""

aten = torch.ops.aten


class Transposed(form.Form):
    """Transposed convolutions with strides, in the last dimension of 2.

    With few channels they win on KernelBench's 1/72 (4.43), 2/50 (3.76), 2/58 (4.28), 2/60 (2.69), 2/72 (2.55), 2/89 (4.57) and 2/96
    (3.79); with many, in TF32, on 1/73 (2.53), 2/15 (2.07), 2/20 (1.61), 2/26 (1.77), 2/74 (2.00), 2/78 (16.65) and 2/100
    (1.85). Those with dilation stay with the library: of four, 1/79 (1.27) and 1/81 (1.42) won.
    """

    name = "transposed convolutions"

    def matches(self, traced: form.Traced) -> bool:
        """Whether there is one."""
        return any(is_spread(node) and _has_kernel(node) for node in form.convolutions(traced.graph))

    def writes(self, graph: GraphModule, gpu: Gpu, variant: Variant) -> None:
        """Writes all of them as the operation that becomes a kernel."""
        block = list(_BLOCKS[variant.rank])
        form.rewrite(graph, [aten.convolution.default], lambda write, node: _written(write, node, block))


def _has_kernel(node: Node) -> bool:
    """Whether a transposed convolution can be written as the operation that becomes a kernel.

    Sums are in float32, the weight's sizes are fixed, nothing is dilated, and there is more than one output: Inductor stores to an
    address that is constant without a mask, from all of a block.
    """
    x, weight, _, strides, _, dilation, *_ = form.convolution_arguments(node)
    x, weight, result = x.meta["val"], weight.meta["val"], node.meta["val"]
    return (
        result.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and x.dim() == weight.dim()
        and all(isinstance(size, int) for size in weight.shape)
        and strides[-1] == _LAST
        and all(step == 1 for step in dilation)
        and result.numel() != 1
    )


def _written(write: form.Writer, node: Node, block: list[int]) -> Node | None:
    if not (is_spread(node) and _has_kernel(node)):
        return None
    one, [x, weight, bias, stride, padding, _, _, more, groups] = form.with_two_dimensions(write, node)
    channels, each, *kernel = weight.meta["val"].shape
    grouped = write(aten.reshape.default, weight, [groups, channels // groups, each, math.prod(kernel)])
    packed = write(aten.permute.default, grouped, [0, 3, 1, 2])
    result = write(_TRANSPOSED, x, packed, *map(list, (kernel, stride, padding, more)), block)
    if bias is not None:
        added = write(aten.reshape.default, bias, [-1, *[1] * len(kernel)])
        result = write(aten.add.Tensor, result, added)
    return form.laid_out_as(write, node, result, one)


def _fake(x: torch.Tensor, weight: Any, kernel: Any, stride: Any, padding: Any, more: Any, _: Any) -> Any:
    groups, _, length, each = weight.shape
    original = x.new_empty(groups * length, each, *kernel)
    return aten.convolution.default(x, original, None, stride, padding, [1] * len(kernel), True, more, groups)


torch.library.register_fake("kernelllm::transposed_convolution", _fake, lib=_LIBRARY)


@lowering.register_lowering(_TRANSPOSED, type_promotion_kind=None)
def _lower(x: Any, weight: Any, kernel: Any, stride: Any, padding: Any, more: Any, block: Any) -> Any:
    groups, _, length, each = (int(size) for size in weight.get_size())
    axes = tuple(map(Axis, "DHW"[-len(kernel) :], kernel, stride, padding))
    dot = length >= FEWEST_CHANNELS
    if dot:  # channels innermost
        x = ir.ExternKernel.require_stride_order(x, [len(axes) + 1, 0, *range(len(axes), 0, -1)])
        weight = ir.ExternKernel.require_stride_order(weight, [3, 1, 0, 2])
    else:
        x = ir.ExternKernel.realize_input(x)
        weight = ir.ExternKernel.require_contiguous(weight)
    with V.graph.fake_mode:
        result = _TRANSPOSED(
            ir.ir_node_to_tensor(x), ir.ir_node_to_tensor(weight), kernel, stride, padding, more, block
        )
    sizes, strides = (convert_shape_to_inductor(each) for each in (result.size(), result.stride()))
    layout = ir.FixedLayout(x.get_device(), x.get_dtype(), sizes, strides)
    text = _Text(axes, dot, groups > 1, _leaves_out(axes, x.get_size()[2:], sizes[2:]))
    positions, most, depth, stages = block
    numbers: dict[str, Any] = {f"KERNEL_{axis.name}": axis.kernel for axis in axes}
    numbers |= {f"STRIDE_{axis.name}": axis.stride for axis in axes}
    if dot:
        numbers |= {"ALLOW_TF32": False, "BLOCK_K": min(depth, 1 << (length - 1).bit_length())}
    choice = _template(text).generate(
        (x, weight),
        layout,
        num_stages=stages,
        num_warps=_WARPS,
        **numbers,
        GROUPS=groups,
        BLOCK_M=positions,
        BLOCK_N=min(most, max(FEWEST_CHANNELS, 1 << (each - 1).bit_length())),
        OUT_M=positions * _LAST,
    )
    return choice.output_node()


def _leaves_out(axes: Sequence[Axis], inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Whether outputs may have taps of which none reads an input; it may be so where sizes are not fixed."""
    sizes = list(zip(axes, inputs, outputs, strict=True))
    fixed = all(size.is_Integer for _, *both in sizes for size in both)
    return not fixed or any(axis.leaves_out(int(read), int(written)) for axis, read, written in sizes)


@select_algorithm.SymbolicGridFn
def _grid(batch: Any, channels: Any, *sizes_and_meta: Any, cdiv: Any) -> tuple[Any, Any, int]:
    *sizes, meta = sizes_and_meta
    positions, remainders = batch, 1
    for axis, size in zip("DHW"[-len(sizes) :], sizes, strict=True):
        positions *= cdiv(size, meta[f"STRIDE_{axis}"])
        remainders *= meta[f"STRIDE_{axis}"]
    blocks = remainders // _LAST * cdiv(positions, meta["BLOCK_M"])
    return blocks, cdiv(channels // meta["GROUPS"], meta["BLOCK_N"]), meta["GROUPS"]


@cache
def _template(text: _Text) -> select_algorithm.TritonTemplate:
    numbers = [n for a in text.axes for n in (a.kernel, a.stride, a.padding)]
    name = "_".join(map(str, ["transposed", *numbers, *map(int, (text.dot, text.grouped, text.leaves_out))]))
    return select_algorithm.TritonTemplate(name, _grid, text.written())


# --------------------------------------------------------------------------- the template's text


@dataclass(frozen=True)
class Axis:
    """One dimension of a transposed convolution."""

    name: str
    kernel: int
    stride: int
    padding: int

    @property
    def low(self) -> str:
        """The name in lower case."""
        return self.name.lower()

    def taps(self, output: int) -> dict[int, int]:
        """Returns the taps of an output, each with the input that it reads, which need not be there."""
        reached = {tap: output + self.padding - tap for tap in range(self.kernel)}
        return {tap: place // self.stride for tap, place in reached.items() if place % self.stride == 0}

    def leaves_out(self, inputs: int, outputs: int) -> bool:
        """Whether an output has taps, but none whose input is there; then it is one of the last."""
        reads = (self.taps(output).values() for output in range(max(0, outputs - self.stride), outputs))
        return any(found and min(found) >= inputs for found in reads)


@dataclass(frozen=True)
class _Text:
    """What the text of the template depends on."""

    axes: tuple[Axis, ...]
    dot: bool
    """Blocks of channels are multiplied; else one channel is read at a time."""
    grouped: bool
    """There are several groups."""
    leaves_out: bool
    """Outputs may have taps of which none reads an input: they are 0, whatever the weights are."""

    def written(self) -> str:
        """Returns the template, in which only what Inductor fills in is left open."""
        *looped, last = self.axes
        number = ""  # of a step's first tap in the last dimension
        for axis in looped:
            place = f"first_{axis.low} + at_{axis.low}" + f" * {axis.stride}" * (axis.stride > 1)
            number = f"({number}) * KERNEL_{axis.name} + {place}" if number else place
        # In the last dimension each input, by its distance, is read once for all sums and taps that need it.
        inputs: dict[int, list[tuple[int, int]]] = {}
        for remainder in range(last.stride):
            for tap, distance in last.taps(remainder).items():
                inputs.setdefault(distance, []).append((remainder, tap))
        template = jinja2.Template(_KERNEL, "<%", "%>", "<<", ">>", trim_blocks=True)
        text = template.render(vars(self), looped=looped, last=last, number=number, inputs=inputs)
        return "\n".join([line for line in text.splitlines() if line.strip()] + [""])


_KERNEL = """
<% macro rows(count, whole) %>
    idx_n = block * <<count>> + tl.arange(0, <<count>>)
<% for axis in axes|reverse %>
<% set size = "(ROWS_%s * STRIDE_%s)" % (axis.name, axis.name) if axis == whole else "ROWS_" ~ axis.name %>
    row_<<axis.low>> = idx_n % <<size>>
    idx_n = idx_n // <<size>>
<% endfor %>
<% endmacro %>
{{def_kernel("X", "W")}}
    BATCH = {{size("X", 0)}}
    IN_C = {{size("X", 1)}}
    OUT_C = {{size(None, 1)}}
<% for axis in axes %>
    IN_<<axis.name>> = {{size("X", <<loop.index + 1>>)}}
    OUT_<<axis.name>> = {{size(None, <<loop.index + 1>>)}}
    ROWS_<<axis.name>> = (OUT_<<axis.name>> + STRIDE_<<axis.name>> - 1) // STRIDE_<<axis.name>>
<% endfor %>
    stride_xn = {{stride("X", 0)}}
    stride_xc = {{stride("X", 1)}}
<% for axis in axes %>
    stride_x<<axis.low>> = {{stride("X", <<loop.index + 1>>)}}
<% endfor %>
    stride_wg = {{stride("W", 0)}}
    stride_wt = {{stride("W", 1)}}
    stride_wc_in = {{stride("W", 2)}}
    stride_wc_out = {{stride("W", 3)}}
    GROUP_IN_C = IN_C<<" // GROUPS" if grouped>>
    GROUP_OUT_C = OUT_C<<" // GROUPS" if grouped>>
    group = <<"tl.program_id(2).to(INDEX_DTYPE)" if grouped else "0">>
    idx_y_c = tl.program_id(1).to(INDEX_DTYPE) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_c = idx_y_c < GROUP_OUT_C
    block = tl.program_id(0).to(INDEX_DTYPE)
<% for axis in looped|reverse if axis.stride > 1 %>
    remainder_<<axis.low>> = block % STRIDE_<<axis.name>>
    block = block // STRIDE_<<axis.name>>
<% endfor %>
<<rows("BLOCK_M", none)>>
<% for axis in looped %>
<% set padded = " + %d" % axis.padding if axis.padding > 0 else "" %>
<% if axis.stride == 1 %>
    first_<<axis.low>> = 0
    taps_<<axis.low>> = KERNEL_<<axis.name>>
    from_<<axis.low>> = row_<<axis.low>><<padded>>
<% else %>
    shifted_<<axis.low>> = remainder_<<axis.low>><<padded>>
    first_<<axis.low>> = shifted_<<axis.low>> % <<axis.stride>>
    taps_<<axis.low>> = (KERNEL_<<axis.name>> - first_<<axis.low>> + <<axis.stride - 1>>) // <<axis.stride>>
    from_<<axis.low>> = row_<<axis.low>> + (shifted_<<axis.low>> - first_<<axis.low>>) // STRIDE_<<axis.name>>
<% endif %>
<% endfor %>
    acc_0 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc_1 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
<% if leaves_out %>
    reads_0 = tl.zeros((BLOCK_M,), dtype=tl.int1)
    reads_1 = tl.zeros((BLOCK_M,), dtype=tl.int1)
<% endif %>
    x_base = X + idx_n * stride_xn + group * GROUP_IN_C * stride_xc
    w_base = W + group * stride_wg + idx_y_c * stride_wc_out
    CHANNEL_STEPS = <<"(GROUP_IN_C + BLOCK_K - 1) // BLOCK_K" if dot else "GROUP_IN_C">>
    for step in range(<% for axis in looped %>taps_<<axis.low>> * <% endfor %>CHANNEL_STEPS):
        idx_c = (step % CHANNEL_STEPS).to(INDEX_DTYPE)<<" * BLOCK_K + tl.arange(0, BLOCK_K)" if dot>>
        tap = step // CHANNEL_STEPS
<% for axis in looped[1:]|reverse %>
        at_<<axis.low>> = tap % taps_<<axis.low>>
        tap = tap // taps_<<axis.low>>
<% endfor %>
        at_<<looped[0].low>> = tap
<% for axis in looped %>
        idx_x_<<axis.low>> = from_<<axis.low>> - at_<<axis.low>>
<% endfor %>
        inside = (idx_n < BATCH)<% for axis in looped %> & (idx_x_<<axis.low>> >= 0) & (idx_x_<<axis.low>> < IN_<<axis.name>>)<% endfor +%>
        x_ptrs = x_base<% for axis in looped %> + idx_x_<<axis.low>> * stride_x<<axis.low>><% endfor +%>
        w_ptrs = w_base + ((<<number>>) * KERNEL_<<last.name>>) * stride_wt
<% if dot %>
        x_ptrs = x_ptrs[:, None] + (idx_c * stride_xc)[None, :]
        w_ptrs = w_ptrs[None, :] + (idx_c * stride_wc_in)[:, None]
        mask_k = idx_c < GROUP_IN_C
        mask_w = mask_k[:, None] & mask_c[None, :]
<% else %>
        x_ptrs = x_ptrs + idx_c * stride_xc
        w_ptrs = w_ptrs + idx_c * stride_wc_in
<% endif %>
<% for place, needs in inputs|dictsort %>
        idx_x_<<last.low>> = row_<<last.low>><<" + %d" % place if place > 0 else " - %d" % -place if place>>
        there = inside<<" & (idx_x_%s >= 0)" % last.low if place < 0>> & (idx_x_<<last.low>> < IN_<<last.name>>)
<% if dot %>
        matrix_x = tl.load(x_ptrs + (idx_x_<<last.low>> * stride_x<<last.low>>)[:, None], mask=there[:, None] & mask_k[None, :], other=0.0)
<% else %>
        value_x = tl.load(x_ptrs + (idx_x_<<last.low>> * stride_x<<last.low>>), mask=there, other=0.0).to(tl.float32)
<% endif %>
<% for n, tap in needs %>
<% if leaves_out %>
        reads_<<n>> = reads_<<n>> | there
<% endif %>
<% set where = "w_ptrs + %d * stride_wt" % tap if tap > 1 else "w_ptrs + stride_wt" if tap else "w_ptrs" %>
<% if dot %>
        acc_<<n>> += tl.dot(matrix_x, tl.load(<<where>>, mask=mask_w, other=0.0), allow_tf32=ALLOW_TF32)
<% else %>
        acc_<<n>> += value_x[:, None] * tl.load(<<where>>, mask=mask_c, other=0.0).to(tl.float32)[None, :]
<% endif %>
<% endfor %>
<% endfor %>
<% if leaves_out %>
    acc_0 = tl.where(reads_0[:, None], acc_0, 0.0)
    acc_1 = tl.where(reads_1[:, None], acc_1, 0.0)
<% endif %>
    acc = tl.reshape(tl.permute(tl.join(acc_0, acc_1), (0, 2, 1)), (OUT_M, BLOCK_N))
<<rows("OUT_M", last)>>
<% for axis in axes %>
<% set split = "(row_%s * STRIDE_%s + remainder_%s)" % (axis.low, axis.name, axis.low) %>
    idx_<<axis.low>> = <<split if axis != last and axis.stride > 1 else "row_" ~ axis.low>>[:, None]
<% endfor %>
    idx_n = idx_n[:, None]
    idx_c = (group * GROUP_OUT_C + idx_y_c)[None, :]
    mask = (idx_n < BATCH)<% for axis in axes %> & (idx_<<axis.low>> < OUT_<<axis.name>>)<% endfor %> & mask_c[None, :]
<% set names = axes|map(attribute="low")|map("replace", "", "idx_", 1)|join('", "') %>
    {{store_output(("idx_n", "idx_c", "<<names>>"), "acc", "mask", val_shape=("OUT_M", "BLOCK_N"))}}
"""

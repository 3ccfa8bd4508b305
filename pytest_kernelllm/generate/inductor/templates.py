"""Makes TorchInductor write matrix products and convolutions as Triton kernels, from its templates, without a GPU.

Inductor would compile each configuration of a template and time it. Here a rough model of the GPU orders them, and a variant
names which of them it takes. Where there is no template, the library call stays.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node

from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.transposed_convolutions import BLOCKS as STRIDED
from pytest_kernelllm.generate.inductor.transposed_convolutions import (
    FEWEST_CHANNELS,
    has_kernel,
    transposed_convolution,
)
from pytest_kernelllm.generate.inductor.variants import BLOCKS, CHANNELS_INNERMOST, TEMPLATE

_UNKNOWN = 2048
"""Stands for a size that is not fixed."""
_EDGE = 64
"""Rows and columns of a result that one program computes, roughly."""
_SHORTEST = 256
"""A product is not cut into parts that are shorter."""
_ACCESS = 4
"""Elements of float32 that one access of a thread reads."""
_WORTH_COPIES = 1024
"""Rows and columns of a result from which on copies of the operands take a small part of the time of their product."""


@contextlib.contextmanager
def chosen_templates(gpu: Gpu, config: Mapping[str, Any]) -> Iterator[None]:
    """Makes Inductor take one configuration of each template inside the block, without timing any.

    Args:
        gpu: the GPU that the code is for.
        config: the options of a variant; ``TEMPLATE`` says which configuration, 0 for the most promising one. With ``BLOCKS``,
            float32 products alone become kernels, with these blocks if the template has them.
    """
    from torch._inductor import select_algorithm

    blocks = config.get(BLOCKS)

    def pick(choices: list[Any]) -> list[Any]:
        kernels = [c for c in choices if isinstance(c, select_algorithm.TritonTemplateCaller)]
        if blocks and choices[0].layout.dtype != torch.float32:
            return ([c for c in choices if c not in kernels] or choices)[:1]
        ranked = sorted(kernels, key=lambda choice: _cost(choice, gpu, bool(blocks))) or choices
        same = [choice for choice in kernels if _blocks(choice) == blocks]
        return (same or ranked[min(config.get(TEMPLATE, 0), len(ranked) - 1) :])[:1]

    functions = select_algorithm.get_algorithm_selector_cache().preprocessing_fns
    functions.append(pick)
    try:
        yield
    finally:
        functions.remove(pick)


def _cost(choice: Any, gpu: Gpu, on_tensor_cores: bool) -> tuple[bool, float]:
    """Estimates the time of a template with its configuration: whether it does not fit the GPU, and a relative time.

    Float32 is ``on_tensor_cores`` where it is taken apart.
    """
    options, (m, n, k) = _options(choice), _blocks(choice)
    warps, stages = options.get("num_warps", 4), options.get("num_stages", 1)
    layout = choice.layout
    sizes = [int(size) if getattr(size, "is_Integer", False) else _UNKNOWN for size in layout.size]
    if "KERNEL_H" in options:  # batch and positions against channels
        groups = options.get("GROUPS", 1)
        rows, columns = math.prod(sizes) // sizes[1], sizes[1] // groups
    else:
        groups, rows, columns = math.prod(sizes[:-2]), sizes[-2], sizes[-1]
    tiles = math.ceil(rows / m) * math.ceil(columns / n) * groups
    waves = math.ceil(tiles / gpu.multi_processor_count)
    full = layout.dtype == torch.float32 and not on_tensor_cores
    reuse = m * n / (m + n)
    speed = reuse / (reuse + (16 if full else 48))
    speed *= min(1.0, 0.5 + k / (32 if full else 128)) * (0.75 if stages == 1 else 1.0)
    registers = m * n / (32 * warps)
    speed *= min(1.0, (64 if full else 128) / registers) * min(1.0, registers / 16)
    shared = (m + n) * k * layout.dtype.itemsize * max(stages - 1, 1)
    return shared > gpu.shared_memory_per_block_optin, waves * m * n / speed


def _options(choice: Any) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", choice.description)}


def _blocks(choice: Any) -> tuple[int, ...]:
    options = _options(choice)
    return tuple(options.get(f"BLOCK_{axis}", 16) for axis in "MNK")


def float32_product(node: Node) -> int:
    """Returns the FLOPs of a product of float32 matrices, at the sizes that were traced; 0 for other operations."""
    aten, value = torch.ops.aten, node.meta.get("val")
    products = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)
    if node.target not in products or not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return 0
    last = cast(Node, node.args[-1 if node.target in products[::2] else 2])
    sizes = (*value.shape, last.meta["val"].shape[-2])
    return 2 * math.prod(size if isinstance(size, int) else int(size.node.hint) for size in sizes)


def for_templates(graph: torch.fx.GraphModule, gpu: Gpu, config: Mapping[str, Any]) -> torch.fx.GraphModule:
    """Rewrites the operations for which Inductor has no template, in place, and returns the graph.

    - Products of a matrix and a vector become sums.
    - With ``BLOCKS``, operands of large products are copied where tensor cores need another order.
    - Products along a dimension that is much longer than the result become several products and their sum.
    - One-dimensional convolutions get a second dimension of size 1.
    - Transposed convolutions become convolutions with the turned weight, or with a stride or dilation what
      ``transposed_convolutions`` writes.
    - With ``CHANNELS_INNERMOST``, inputs and weights of convolutions with many channels are copied so.

    Other convolutions with dilation stay library calls. If the variant has no templates for convolutions, all of them do.
    """
    aten = torch.ops.aten
    rewrites: list[tuple[Any, Callable[[_Writer, Node], Node | None]]] = [
        (aten.mm.default, lambda write, node: _product(write, node, gpu, config.get(BLOCKS)))
    ]
    if BLOCKS in config:
        rewrites += [
            (each, _in_order) for each in (aten.bmm.default, aten.addmm.default, aten.baddbmm.default)
        ]
    if "TRITON" in config["max_autotune_conv_backends"]:
        rewrites.append((aten.convolution.default, lambda write, node: _convolution(write, node, config)))
    for operation, rewrite in rewrites:
        for node in graph.graph.find_nodes(op="call_function", target=operation):
            with graph.graph.inserting_before(node):
                result = rewrite(_Writer(graph.graph), node)
            if result is not None:
                node.replace_all_uses_with(result)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


class _Writer:
    """Adds operations to a graph, with the tensors that they return."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __call__(self, operation: Any, *args: Any, **options: Any) -> Node:
        node = self.graph.call_function(operation, args, options)
        values = torch.fx.map_arg(args, lambda argument: argument.meta["val"])
        tensors = [value for value in values if isinstance(value, FakeTensor)]
        with tensors[0].fake_mode:
            node.meta["val"] = operation(*values, **options)
        return node


def _product(write: _Writer, node: Node, gpu: Gpu, blocks: Sequence[int] | None) -> Node | None:
    """Rewrites a product with a vector, one that too few programs would compute, and with ``BLOCKS`` one that tensor cores get
    in the wrong order."""
    aten = torch.ops.aten
    a, b = node.all_input_nodes if len(node.all_input_nodes) == 2 else node.all_input_nodes * 2
    sizes = [*a.meta["val"].shape, b.meta["val"].shape[1]]
    if not all(isinstance(size, int) for size in sizes):
        return None
    rows, length, columns = sizes
    if 0 in sizes:
        return None
    if 1 in (rows, columns):
        products = write(
            aten.mul.Tensor, write(aten.unsqueeze.default, a, 2), write(aten.unsqueeze.default, b, 0)
        )
        return write(aten.sum.dim_IntList, products, [1])
    height, width = blocks[:2] if blocks else (_EDGE, _EDGE)
    programs = math.ceil(rows / height) * math.ceil(columns / width)
    parts = 1
    while programs * parts < gpu.multi_processor_count and length % (2 * parts * _SHORTEST) == 0:
        parts *= 2
    if parts == 1:
        return _in_order(write, node) if blocks else None
    if a.meta["val"].dtype != torch.float32:  # partial sums are stored in this dtype
        return None
    cut = write(aten.reshape.default, a, [rows, parts, length // parts])
    several = write(
        aten.bmm.default,
        write(aten.permute.default, cut, [1, 0, 2]),
        write(aten.reshape.default, b, [parts, length // parts, columns]),
    )
    return write(aten.sum.dim_IntList, several, [0])


def _in_order(write: _Writer, node: Node) -> Node | None:
    """Copies the operands of a large float32 product so that tensor cores get them as they need them, see ``products``.

    The summed dimension must be innermost in the second operand, and its length divisible by what one access reads.
    """
    aten = torch.ops.aten
    *added, a, b = cast(tuple[Node, ...], node.args)
    (*_, rows, length), columns = a.meta["val"].shape, b.meta["val"].shape[-1]
    sizes = (rows, length, columns)
    if a.meta["val"].dtype != torch.float32 or not all(isinstance(size, int) for size in sizes):
        return None
    missing = -length % _ACCESS
    if rows < _WORTH_COPIES or (missing and columns < _WORTH_COPIES):
        return None
    if b.meta["val"].stride(-2) == 1 and not missing:
        return None
    flip = [1, 0] if b.meta["val"].dim() == 2 else [0, 2, 1]
    turned = write(aten.permute.default, b, flip)
    if missing:
        a = write(aten.constant_pad_nd.default, a, [0, missing])
        turned = write(aten.constant_pad_nd.default, turned, [0, missing])
    else:
        turned = write(aten.clone.default, turned, memory_format=torch.contiguous_format)
    return write(node.target, *added, a, write(aten.permute.default, turned, flip), **node.kwargs)


def _convolution(write: _Writer, node: Node, config: Mapping[str, Any]) -> Node | None:
    """Rewrites a one-dimensional convolution, a transposed one, and one whose channels shall be innermost."""
    aten = torch.ops.aten
    x, weight, bias, strides, padding, dilation, transposed, more, groups = cast(Any, node.args)
    one, innermost = len(strides) == 1, CHANNELS_INNERMOST in config
    dilated = any(step != 1 for step in dilation)
    before = [size - 1 - pad for size, pad in zip(weight.meta["val"].shape[2:], padding, strict=True)]
    spread = transposed and (dilated or any(step != 1 for step in strides) or min(before) < 0)
    if spread and not has_kernel(node):
        return None
    if not transposed and (dilated or not (one or innermost)):  # Inductor's templates know no dilation
        return None
    if one:
        x, weight = write(aten.unsqueeze.default, x, 2), write(aten.unsqueeze.default, weight, 2)
        strides, padding, dilation, more = [1, *strides], [0, *padding], [1, *dilation], [0, *more]
        before = [0, *before]
    if spread:
        block = STRIDED[config.get(TEMPLATE, 0)]
        result = transposed_convolution(
            write, x, weight, bias, strides, padding, dilation, more, groups, block
        )
    else:
        if transposed:
            weight, padding, more = _turned(write, weight, groups), before, [0] * len(before)
        if innermost and weight.meta["val"].shape[1] >= FEWEST_CHANNELS:
            order = torch.channels_last if len(strides) == 2 else torch.channels_last_3d
            x, weight = (write(aten.clone.default, each, memory_format=order) for each in (x, weight))
        result = write(
            aten.convolution.default, x, weight, bias, strides, padding, dilation, False, more, groups
        )
    if result.meta["val"].stride()[-1] != 1 and node.meta["val"].is_contiguous():
        result = write(aten.clone.default, result, memory_format=torch.contiguous_format)
    return write(aten.squeeze.dim, result, 2) if one else result


def _turned(write: _Writer, weight: Any, groups: int) -> Node:
    """Returns the weight with which a plain convolution computes what a transposed one computes with this weight."""
    aten = torch.ops.aten
    channels, each, *kernel = weight.meta["val"].shape
    axes = range(2, 2 + len(kernel))
    grouped = write(aten.reshape.default, weight, [groups, channels // groups, each, *kernel])
    swapped = write(aten.permute.default, grouped, [0, 2, 1, *(axis + 1 for axis in axes)])
    joined = write(aten.reshape.default, swapped, [groups * each, channels // groups, *kernel])
    return write(torch.ops.prims.rev.default, joined, list(axes))

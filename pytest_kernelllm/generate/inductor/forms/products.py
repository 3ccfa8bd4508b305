"""Matrix products as kernels from Inductor's templates; those of float32 as several of lower precision, on tensor cores.

A float32 is the sum of two TF32 numbers, up to 2**-22 of it, or of three bfloat16 numbers. ``tl.dot`` multiplies these parts, but
for the smallest with each other (``input_precision``), and adds in float32. On an H200 its errors for 4,096 × 4,096 × 4,096 normal
numbers were a fifth and a seventh of those of cuBLAS in float32, in 0.54 and 0.71 of its time. Source of the idea: Markidis et
al., "NVIDIA Tensor Core Programmability, Performance & Precision", 2018.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch.fx import GraphModule, Node

from kernelllm_judge.core.records import Domain
from pytest_kernelllm.generate.inductor.device import Gpu
from pytest_kernelllm.generate.inductor.forms.form import TF32_PAYS, Form, Traced, Writer, aten, rewrite
from pytest_kernelllm.generate.inductor.variants import IN_PARTS, Variant

_EDGE = 64
"""Rows and columns of a result that one program computes, roughly."""
_SHORTEST = 256
"""A product is not cut into parts that are shorter."""
_ACCESS = 4
"""Elements of float32 that one access of a thread reads."""
_WORTH_COPIES = 1024
"""Rows and columns of a result from which on copies of the operands take a small part of the time of their product."""
_LARGE = 1 << 30
"""FLOPs above which a product takes most of a small module's time: 20 µs in float32 on an H200."""

_ADDED_UP = (aten.bmm.default, aten.addmm.default, aten.baddbmm.default)
_FULL = "ALLOW_TF32 : tl.constexpr = False"
"""Text in a template whose products are computed in full float32."""
_KERNEL = re.compile(r"(?<=''')[^']*@triton_heuristics\.template\(.*?(?=''')", re.DOTALL)
_NAME = re.compile(r"^def (\w+)\(", re.MULTILINE)
_BLOCK = r"BLOCK_{} : tl\.constexpr = (\d+)"
_DOT = "tl.dot(a, b, allow_tf32=ALLOW_TF32"


class Products(Form):
    """Products as kernels, for modules of which nothing else would be left, and for what comes after a product.

    What Inductor has no template for becomes something else: the product of a matrix and a vector a sum (1.19 on KernelBench's
    1/4), and one along a dimension that is much longer than the result several products and their sum (1.25 on 1/6).
    """

    name = "products"

    def matches(self, traced: Traced) -> bool:
        """Whether there is one."""
        return any(node.target in (aten.mm.default, *_ADDED_UP) for node in traced.graph.nodes)

    def writes(self, graph: GraphModule, gpu: Gpu, variant: Variant) -> None:
        """Rewrites the products that Inductor's templates cannot compute, or not well."""
        rewrite(graph, [aten.mm.default], lambda write, node: _product(write, node, gpu, (_EDGE, _EDGE)))


class Float32Products(Form):
    """Float32 products on tensor cores, in three TF32 or six bfloat16 parts.

    They win on 37 problems of KernelBench that have products: 1/1 to 1/3 (1.42 to 1.81), 1/6 to 1/11 (1.25 to 1.99), 1/13 to 1/18
    (1.81 to 2.01), and those of level 2 (1.58 to 2.06, such as 2/12, 2/33, 2/45, 2/56, 2/68 and 2/98).
    """

    name = "float32 products"
    least = 0
    """FLOPs of the largest product that are too few."""

    def matches(self, traced: Traced) -> bool:
        """Whether there is one, and tensor cores are that much faster."""
        return traced.gpu.tf32 > TF32_PAYS and max(map(_float32_flops, traced.graph.nodes)) > self.least

    def writes(self, graph: GraphModule, gpu: Gpu, variant: Variant) -> None:
        """Writes products with a vector as sums, splits long ones, and copies operands that tensor cores need in another order."""
        assert variant.blocks is not None
        edges = variant.blocks[:2]
        rewrite(
            graph,
            [aten.mm.default],
            lambda write, node: _product(write, node, gpu, edges) or _in_order(write, node),
        )
        rewrite(graph, _ADDED_UP, _in_order)

    def finishes(self, source: str, domain: Domain, variant: Variant) -> str:
        """Writes each product of a template in parts."""
        return float32_templates(source, lambda text: text if "stride_wc_in = " in text else _in_parts(text))


class LargeProducts(Float32Products):
    """Those that take most of a small module's time, which are tried first."""

    name = "large float32 products"
    least = _LARGE


def _float32_flops(node: Node) -> int:
    """Returns the FLOPs of a product of float32 matrices, at the sizes that were traced; 0 for other operations."""
    value = node.meta.get("val")
    products = (aten.mm.default, *_ADDED_UP)
    if node.target not in products or not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return 0
    last = cast(Node, node.args[2 if node.target in _ADDED_UP[1:] else 1])
    sizes = (*value.shape, last.meta["val"].shape[-2])
    return 2 * math.prod(size if isinstance(size, int) else int(size.node.hint) for size in sizes)


def _product(write: Writer, node: Node, gpu: Gpu, edges: Sequence[int]) -> Node | None:
    """Rewrites a product with a vector, and one that too few programs would compute, each so many rows and columns."""
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
    programs = math.ceil(rows / edges[0]) * math.ceil(columns / edges[1])
    parts = 1
    while programs * parts < gpu.multi_processor_count and length % (2 * parts * _SHORTEST) == 0:
        parts *= 2
    if parts == 1 or a.meta["val"].dtype != torch.float32:  # partial sums are stored in this dtype
        return None
    cut = write(aten.reshape.default, a, [rows, parts, length // parts])
    several = write(
        aten.bmm.default,
        write(aten.permute.default, cut, [1, 0, 2]),
        write(aten.reshape.default, b, [parts, length // parts, columns]),
    )
    return write(aten.sum.dim_IntList, several, [0])


def _in_order(write: Writer, node: Node) -> Node | None:
    """Copies the operands of a large float32 product so that tensor cores get them as they need them.

    The summed dimension must be innermost in the second operand, and its length divisible by what one access reads.
    """
    *added, a, b = cast(tuple[Node, ...], node.args)
    (*_, rows, length), columns = a.meta["val"].shape, b.meta["val"].shape[-1]
    sizes = (rows, length, columns)
    if a.meta["val"].dtype != torch.float32 or not all(isinstance(size, int) for size in sizes) or 0 in sizes:
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


def float32_templates(source: str, change: Callable[[str], str]) -> str:
    """Returns Inductor's text with each kernel of a template that computes products in full float32 changed."""
    return _KERNEL.sub(lambda found: change(found[0]) if _FULL in found[0] else found[0], source)


def blocks(source: str) -> dict[str, tuple[int, ...]]:
    """Returns the rows, the columns and the length of the blocks of each template's kernel, by its name."""
    texts = [found[0] for found in _KERNEL.finditer(source)]
    named = [(found[1], text) for text in texts if (found := _NAME.search(text))]
    return {name: tuple(_block(text, axis) for axis in "MNK") for name, text in named}


def _block(kernel: str, axis: str) -> int:
    found = re.search(_BLOCK.format(axis), kernel)
    return int(found[1]) if found else 0


def _in_parts(kernel: str) -> str:
    """Rewrites a template's kernel.

    The second operand of a TF32 product must be in shared memory with the summed dimension innermost; the first is in registers,
    in any order. Where neither the other way round is possible, the parts are bfloat16, for which the order does not matter; also
    where a kernel adds up two products.
    """
    fits = [name for name in ("bk", "ak") if f"stride_{name} = 1\n" in kernel]
    if not fits or kernel.count("tl.dot(") != 1:
        return with_precision(kernel, "bf16x6")
    turned = "ak" in fits and (_block(kernel, "M") < _block(kernel, "N") or "bk" not in fits)
    if turned:
        kernel = kernel.replace("tl.zeros((BLOCK_M, BLOCK_N)", "tl.zeros((BLOCK_N, BLOCK_M)")
        kernel = kernel.replace(_DOT, _DOT.replace("a, b", "tl.trans(b), tl.trans(a)"))
        kernel = kernel.replace("mask = (idx_m < M)", "acc = tl.trans(acc)\n    mask = (idx_m < M)")
    return with_precision(kernel, "tf32x3")


def with_precision(kernel: str, precision: str) -> str:
    """Returns a template's kernel whose float32 products have a precision of ``tl.dot``."""
    named = kernel.replace(_FULL, f"{IN_PARTS} = '{precision}'")
    return named.replace("allow_tf32=ALLOW_TF32", "input_precision=PRECISION")

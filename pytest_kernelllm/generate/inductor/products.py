"""Rewrites the float32 products in TorchInductor's templates as several of lower precision, which tensor cores compute.

A float32 is the sum of two TF32 numbers, up to 2**-22 of it, or of three bfloat16 numbers. ``tl.dot`` multiplies these parts, but
for the smallest with each other (``input_precision``), and adds in float32. On an H200 its errors for 4,096 × 4,096 × 4,096 normal
numbers were a fifth and a seventh of those of cuBLAS in float32, in 0.54 and 0.71 of its time. Source of the idea: Markidis et
al., "NVIDIA Tensor Core Programmability, Performance & Precision", 2018. Convolutions have one product in TF32, or three of bfloat16,
where the settings allow TF32 for them.
"""

from __future__ import annotations

import re

from pytest_kernelllm.generate.inductor.convolutions import in_one_dimension
from pytest_kernelllm.generate.inductor.variants import IN_PARTS

_FULL = "ALLOW_TF32 : tl.constexpr = False"
"""In the code of a template whose products are computed in full float32."""

_KERNEL = re.compile(r"(?<=''')[^']*@triton_heuristics\.template\(.*?(?=''')", re.DOTALL)
_NAME = re.compile(r"^def (\w+)\(", re.MULTILINE)
_BLOCK = r"BLOCK_{} : tl\.constexpr = (\d+)"
_DOT = "tl.dot(a, b, allow_tf32=ALLOW_TF32"


def on_tensor_cores(source: str, *, tf32: bool) -> str:
    """Returns TorchInductor's output code with the float32 products of its templates in parts.

    Args:
        source: the output code.
        tf32: the settings allow TF32 for convolutions, of which the first part then is enough.
    """
    return _KERNEL.sub(lambda found: _in_parts(found[0], tf32) if _FULL in found[0] else found[0], source)


def blocks(source: str) -> dict[str, tuple[int, ...]]:
    """Returns the rows, the columns and the length of the blocks of each template's kernel, by its name."""
    texts = [found[0] for found in _KERNEL.finditer(source)]
    named = [(found[1], text) for text in texts if (found := _NAME.search(text))]
    return {name: tuple(_block(text, axis) for axis in "MNK") for name, text in named}


def _block(kernel: str, axis: str) -> int:
    found = re.search(_BLOCK.format(axis), kernel)
    return int(found[1]) if found else 0


def _in_parts(kernel: str, tf32: bool) -> str:
    """Rewrites a template's kernel.

    The second operand of a TF32 product must be in shared memory with the summed dimension innermost; the first is in registers,
    in any order. Where neither the other way round is possible, the parts are bfloat16, for which the order does not matter; also
    where a kernel adds up two products.
    """
    if "stride_wc_in = " in kernel:
        return _convolution(kernel, tf32)
    fits = [name for name in ("bk", "ak") if f"stride_{name} = 1\n" in kernel]
    if not fits or kernel.count("tl.dot(") != 1:
        return _with_precision(kernel, "bf16x6")
    turned = "ak" in fits and (_block(kernel, "M") < _block(kernel, "N") or "bk" not in fits)
    if turned:
        kernel = kernel.replace("tl.zeros((BLOCK_M, BLOCK_N)", "tl.zeros((BLOCK_N, BLOCK_M)")
        kernel = kernel.replace(_DOT, _DOT.replace("a, b", "tl.trans(b), tl.trans(a)"))
        kernel = kernel.replace("mask = (idx_m < M)", "acc = tl.trans(acc)\n    mask = (idx_m < M)")
    return _with_precision(kernel, "tf32x3")


def _convolution(kernel: str, tf32: bool) -> str:
    """Rewrites a convolution's template. TF32 needs weights whose summed dimension is innermost, see ``convolutions``."""
    rewritten = in_one_dimension(kernel)
    if rewritten != kernel or "stride_wc_in = 1\n" in kernel:
        return _with_precision(rewritten, "tf32" if tf32 else "tf32x3")
    return _with_precision(rewritten, "bf16x3" if tf32 else "bf16x6")


def _with_precision(kernel: str, precision: str) -> str:
    named = kernel.replace(_FULL, f"{IN_PARTS} = '{precision}'")
    return named.replace("allow_tf32=ALLOW_TF32", "input_precision=PRECISION")

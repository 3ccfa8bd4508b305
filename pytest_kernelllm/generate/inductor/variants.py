"""The variants in which TorchInductor compiles a module; each may give another candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kernelllm_judge.render.inductor.program import BACKWARDS, PARTS


@dataclass(frozen=True)
class Variant:
    """One way to compile a module."""

    note: str
    config: Mapping[str, Any] = field(default_factory=dict)
    """TorchInductor options."""
    choice: int = 0
    """Which of Inductor's configurations each kernel gets: its last one if it has fewer."""
    only: Literal[
        "",
        "convolution",
        "depthwise",
        "gradients",
        "float32 products",
        "large float32 products",
        "float32 convolutions",
        "products of few rows",
        "group norm",
    ] = ""
    """What a module must compute, or else the variant is left out. Float32 products are written in parts, convolutions in TF32 where
    the settings allow it, see ``inductor.products``, and products of few rows as one kernel, see ``inductor.few_rows``."""
    needs: str = ""
    """What Inductor's code must have, or else the variant is left out."""
    replaces: Mapping[str, str] = field(default_factory=dict)
    """What is replaced in Inductor's code, and by what."""
    longest_row: int = 0
    """Rows of up to so many elements are read once and kept in registers, also where Inductor would loop over them."""
    parts: int = 1
    """How many times as many parts as Inductor's a split sum has, see ``lowering``."""
    whole_groups: bool = False
    """Whether a group norm applies its weight and bias to each element, see ``inductor.library``."""
    depthwise: bool = False
    """Whether depthwise convolutions are written as kernels, see ``inductor.windows``."""
    again: Literal["", "backwards", "in parts"] = ""
    """How long rows are read the second time, see ``inductor.long_rows``."""
    template: Mapping[str, int] = field(default_factory=dict)
    """How the kernels of templates that have the variant's ``BLOCKS`` are launched: ``num_warps`` and ``num_stages``."""


KEPT = "eviction_policy='evict_last'"
"""Of a load, in Inductor's code: what it reads stays in L2 for longer than other things. Inductor keeps what is not coalesced,
and where sizes are free it takes the parts of a split sum over several dimensions for that, of which each element is read once."""

_NOT_KEPT = {KEPT: KEPT.replace("last", "first")}

TEMPLATE = "kernelllm_template"
"""Names, among the options of a variant, which configuration of each template is taken; no option of Inductor's."""

BLOCKS = "kernelllm_blocks"
"""Names the blocks, as (rows, columns, length), of the templates for float32 products, which alone become kernels. They and how
they are launched were the fastest on an H200 for 4,096 × 4,096 × 4,096, and for few rows."""

CONVOLUTION_BLOCKS = "kernelllm_convolution_blocks"
"""Names the blocks of the templates for convolutions, as (positions, channels, length), and their stages."""

CHANNELS_INNERMOST = "kernelllm_channels_innermost"
"""Says whether convolutions of many channels get inputs and weights copied with channels innermost, as accesses of a template for
them then read several at once."""

CONVOLUTION = "KERNEL_W : tl.constexpr"
"""In the code of a template for convolutions."""

IN_PARTS = "PRECISION : tl.constexpr"
"""In the code of a template whose float32 products are computed in parts, see ``inductor.products``."""

_PRODUCTS = {
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "ATEN,TRITON",
    "triton.num_decompose_k_splits": 0,  # long products are split by `templates`
}
_TEMPLATES = {**_PRODUCTS, "max_autotune_conv_backends": "ATEN,TRITON"}
_FLOAT32_PRODUCTS = {
    **_PRODUCTS,
    "max_autotune_conv_backends": "ATEN",
    "prologue_fusion": False,  # operands are copied in another order for a reason
}
_TUNED = {"max_autotune_pointwise": True}
"""Makes Inductor name more configurations; with ``torch.compile`` it also times them."""

_IN_ONE_PASS = {"triton.mix_order_reduction": True, "triton.mix_order_reduction_non_strict_mode": True}
"""Sums along rows and along columns, as in the backward pass of a norm, whatever the free sizes are."""

_WHOLE = {"split_reductions": False}
"""Has no kernel of its own for the parts of a sum."""

_AS_THEY_LIE = {"layout_optimization": False}
"""Keeps Inductor from copying tensors to the layout that cuDNN prefers, and back."""

_FLOAT32_CONVOLUTIONS = {
    **_FLOAT32_PRODUCTS,
    **_AS_THEY_LIE,
    "max_autotune_conv_backends": "ATEN,TRITON",
    BLOCKS: (128, 128, 64),
}

WITHOUT_COPIES = Variant("convolutions without copies", _AS_THEY_LIE, only="convolution")

FLOAT32_PRODUCTS: Literal["float32 products"] = "float32 products"
LARGE_PRODUCTS: Literal["large float32 products"] = "large float32 products"
FLOAT32_CONVOLUTIONS: Literal["float32 convolutions"] = "float32 convolutions"
FEW_ROWS: Literal["products of few rows"] = "products of few rows"
GROUP_NORM: Literal["group norm"] = "group norm"

_ON_TENSOR_CORES = Variant(
    "float32 products on tensor cores",
    {**_FLOAT32_PRODUCTS, BLOCKS: (128, 128, 64)},
    only=FLOAT32_PRODUCTS,
    needs=IN_PARTS,
    template={"num_warps": 8, "num_stages": 3},
)

_CONVOLUTIONS = tuple(
    Variant(
        f"float32 convolutions on tensor cores{which}",
        {**_FLOAT32_CONVOLUTIONS, CONVOLUTION_BLOCKS: blocks, **more},
        only=FLOAT32_CONVOLUTIONS,
        needs=CONVOLUTION,
        depthwise=True,
        template=_ON_TENSOR_CORES.template,
    )
    for which, blocks, more in (
        ("", (128, 64, 32, 3), {}),
        (", in shorter blocks", (128, 64, 16, 4), {TEMPLATE: 1}),
        (", channels innermost", (128, 128, 32, 3), {CHANNELS_INNERMOST: True}),
        (", in blocks of more positions", (256, 64, 16, 3), {TEMPLATE: 2}),
        (", in blocks of more channels", (128, 128, 16, 3), {TEMPLATE: 3}),
        (", channels innermost, in blocks of fewer channels", (128, 64, 32, 4), {CHANNELS_INNERMOST: True}),
    )
)

TEMPLATES = Variant("matrix products and convolutions as kernels", _TEMPLATES, depthwise=True)

VARIANTS = (
    Variant("products of few rows as kernels", only=FEW_ROWS),
    Variant("depthwise convolutions as kernels", _AS_THEY_LIE, only="depthwise", depthwise=True),
    replace(_ON_TENSOR_CORES, only=LARGE_PRODUCTS),
    Variant("Inductor's fusion, its usual block sizes"),
    _ON_TENSOR_CORES,
    Variant(
        "float32 products on tensor cores, in smaller blocks",
        {**_FLOAT32_PRODUCTS, BLOCKS: (64, 128, 64)},
        only=FLOAT32_PRODUCTS,
        needs=IN_PARTS,
        template={"num_warps": 8, "num_stages": 4},
    ),
    *_CONVOLUTIONS,
    Variant(
        "rows and columns summed in one pass",
        _IN_ONE_PASS,
        only="gradients",
        needs="MixOrderReductionGrid",
        longest_row=1 << 14,
    ),
    Variant("long rows in parts, read again from L2", _WHOLE, needs=f'"{PARTS}"', again="in parts"),
    Variant("long rows read backwards the second time", _WHOLE, needs=f'"{BACKWARDS}"', again="backwards"),
    Variant("group norms that apply weights to each element", only=GROUP_NORM, whole_groups=True),
    Variant(
        "groups in parts, read again from L2",
        _WHOLE,
        only=GROUP_NORM,
        whole_groups=True,
        needs=f'"{PARTS}"',
        again="in parts",
    ),
    Variant("groups not split", _WHOLE, only=GROUP_NORM, whole_groups=True),
    TEMPLATES,
    WITHOUT_COPIES,
    Variant("depthwise convolutions as kernels, copies for others", only="depthwise", depthwise=True),
    Variant("Inductor's second choice of blocks", choice=1),
    Variant("matrix products and convolutions in other blocks", {**_TEMPLATES, TEMPLATE: 1}, depthwise=True),
    Variant("short reductions unrolled", {"unroll_reductions_threshold": 64}),
    Variant("whole rows in registers", longest_row=1 << 14),
    Variant("reductions not split", _WHOLE),
    Variant("looped reductions", {"triton.persistent_reductions": False}),
    *(
        Variant(f"Inductor's {number} choice of blocks", _TUNED, choice)
        for choice, number in enumerate(("third", "fourth", "fifth", "sixth"), 2)
    ),
    *(
        Variant(
            f"matrix products and convolutions in the {number} choice of blocks",
            {**_TEMPLATES, TEMPLATE: choice},
            depthwise=True,
        )
        for choice, number in enumerate(("third", "fourth"), 2)
    ),
    Variant("nothing kept in L2", needs=KEPT, replaces=_NOT_KEPT),
    Variant("sums in more parts, nothing kept in L2", parts=8, replaces=_NOT_KEPT),
    Variant("looped reductions, not split", {"triton.persistent_reductions": False, **_WHOLE}),
)
"""The most promising variants come first; those that do not change a target's code are left out."""

"""The variants in which TorchInductor compiles a module; each may give another candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_DEPTHWISE = "depthwise convolutions"


@dataclass(frozen=True)
class Variant:
    """One way to compile a module."""

    note: str
    config: Mapping[str, Any] = field(default_factory=dict)
    """TorchInductor options."""
    forms: tuple[str, ...] = ()
    """The special forms in which it writes what they are for, by their names in ``forms.registry``."""
    only: str = ""
    """The special form that a module must match, or else the variant is left out."""
    needs: str = ""
    """What Inductor's code must have, or else the variant is left out."""
    choice: int = 0
    """Which of Inductor's configurations each kernel gets: its last one if it has fewer."""
    rank: int = 0
    """Which configuration of each template is taken, 0 for the most promising one."""
    longest_row: int = 0
    """Rows of up to so many elements are read once and kept in registers, also where Inductor would loop over them."""
    blocks: tuple[int, int, int] | None = None
    """Rows, columns and length of the blocks of templates for float32 products, which alone become kernels then. They and how
    they are launched were the fastest on an H200 for 4,096 × 4,096 × 4,096, and for few rows."""
    launch: Mapping[str, int] = field(default_factory=dict)
    """How the kernels of templates that have these ``blocks`` are launched: ``num_warps`` and ``num_stages``."""
    convolution_blocks: tuple[int, int, int, int] | None = None
    """Positions, channels and length of the blocks of templates for convolutions, and their stages."""
    channels_innermost: bool = False
    """Whether convolutions of many channels get inputs and weights copied with channels innermost."""


CONVOLUTION = "KERNEL_W : tl.constexpr"
"""Text in a template for convolutions."""

IN_PARTS = "PRECISION : tl.constexpr"
"""In the code of a template whose float32 products are computed in parts."""

_PRODUCTS = {
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "ATEN,TRITON",
    "triton.num_decompose_k_splits": 0,  # long products are split by `forms.products`
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

WITHOUT_COPIES = Variant("convolutions without copies", _AS_THEY_LIE, only="convolutions")

TEMPLATES = Variant(
    "matrix products and convolutions as kernels",
    _TEMPLATES,
    ("products", "transposed convolutions", "convolutions", _DEPTHWISE),
)

_ON_TENSOR_CORES = Variant(
    "float32 products on tensor cores",
    _FLOAT32_PRODUCTS,
    ("float32 products",),
    "float32 products",
    IN_PARTS,
    blocks=(128, 128, 64),
    launch={"num_warps": 8, "num_stages": 3},
)

_CONVOLUTIONS = tuple(
    replace(
        _ON_TENSOR_CORES,
        note=f"float32 convolutions on tensor cores{which}",
        config={**_FLOAT32_PRODUCTS, **_AS_THEY_LIE, "max_autotune_conv_backends": "ATEN,TRITON"},
        forms=("float32 products", "transposed convolutions", "float32 convolutions", _DEPTHWISE),
        only="float32 convolutions",
        needs=CONVOLUTION,
        rank=rank,
        convolution_blocks=blocks,
        channels_innermost=innermost,
    )
    for which, rank, blocks, innermost in (
        ("", 0, (128, 64, 32, 3), False),
        (", in shorter blocks", 1, (128, 64, 16, 4), False),
        (", channels innermost", 0, (128, 128, 32, 3), True),
        (", in blocks of more positions", 2, (256, 64, 16, 3), False),
        (", in blocks of more channels", 3, (128, 128, 16, 3), False),
        (", channels innermost, in blocks of fewer channels", 0, (128, 64, 32, 4), True),
    )
)

_ATTENTION = Variant("attention as a kernel", {}, ("attention",), "attention")

VARIANTS = (
    _ATTENTION,
    replace(_ATTENTION, note="attention as a kernel, in smaller blocks", rank=1),
    Variant("products of few rows as kernels", {}, ("products of few rows",), "products of few rows"),
    Variant("depthwise convolutions as kernels", _AS_THEY_LIE, (_DEPTHWISE,), _DEPTHWISE),
    replace(_ON_TENSOR_CORES, only="large float32 products"),
    Variant("Inductor's fusion, its usual block sizes"),
    _ON_TENSOR_CORES,
    replace(
        _ON_TENSOR_CORES,
        note="float32 products on tensor cores, in smaller blocks",
        blocks=(64, 128, 64),
        launch={"num_warps": 8, "num_stages": 4},
    ),
    *_CONVOLUTIONS,
    Variant(
        "rows and columns summed in one pass",
        _IN_ONE_PASS,
        only="one pass",
        needs="MixOrderReductionGrid",
        longest_row=1 << 14,
    ),
    TEMPLATES,
    *(
        replace(_ATTENTION, note=f"attention as a kernel, in the {number} choice of blocks", rank=rank)
        for rank, number in enumerate(("third", "fourth"), 2)
    ),
    WITHOUT_COPIES,
    Variant("depthwise convolutions as kernels, copies for others", {}, (_DEPTHWISE,), _DEPTHWISE),
    Variant("Inductor's second choice of blocks", choice=1),
    replace(TEMPLATES, note="matrix products and convolutions in other blocks", rank=1),
    Variant("short reductions unrolled", {"unroll_reductions_threshold": 64}),
    Variant("whole rows in registers", longest_row=1 << 14),
    Variant("reductions not split", _WHOLE),
    Variant("looped reductions", {"triton.persistent_reductions": False}),
    *(
        Variant(f"Inductor's {number} choice of blocks", _TUNED, choice=choice)
        for choice, number in enumerate(("third", "fourth", "fifth", "sixth"), 2)
    ),
    *(
        replace(
            TEMPLATES, note=f"matrix products and convolutions in the {number} choice of blocks", rank=rank
        )
        for rank, number in enumerate(("third", "fourth"), 2)
    ),
    Variant("looped reductions, not split", {"triton.persistent_reductions": False, **_WHOLE}),
)
"""The most promising variants come first; those that do not change a target's code are left out."""

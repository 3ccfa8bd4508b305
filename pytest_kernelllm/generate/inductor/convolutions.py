"""Rewrites the loop of TorchInductor's templates for convolutions: channels and the kernel's positions become one dimension.

The templates go through the positions, and at each through blocks of channels. With few channels such a block is nearly empty: 3
of the 16 that ``tl.dot`` takes at least. In one dimension blocks are full, and the weights of an output channel lie side by side,
so that the summed dimension is innermost, as TF32 needs it (see ``products``), in the layout that PyTorch's weights have. On an
H200 KernelBench's 2/27, a three-dimensional convolution of 3 channels, took 0.46 of ``torch.compile``'s time like that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

WARPS = 4
"""Inductor gives these templates no more."""

_LOOP = re.compile(r"    BLOCK_K_COUNT = .*?\n +acc \+= tl\.dot\([^\n]*\n", re.DOTALL)
_SIZE = r"^    {} : tl\.constexpr = (\d+)$"
_STRIDE = r"^    stride_{} = (\d+)$"


def only_configuration(blocks: Sequence[int]) -> Callable[..., Any]:
    """Returns what replaces ``InductorChoices.get_conv_configs``: the templates' only configuration.

    Args:
        blocks: see ``variants.CONVOLUTION_BLOCKS``; a block has no more channels than the next power of two, of all groups together.
    """
    positions, most, length, stages = blocks

    def one(rows: Any, channels: int, *_: Any, **__: Any) -> list[SimpleNamespace]:
        columns = min(most, max(16, 1 << (channels - 1).bit_length()))
        named = {"BLOCK_M": positions, "BLOCK_N": columns, "BLOCK_K": length}
        return [SimpleNamespace(kwargs=named, num_warps=WARPS, num_stages=stages)]

    return lambda choices, device_type=None: one


def in_one_dimension(kernel: str) -> str:
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

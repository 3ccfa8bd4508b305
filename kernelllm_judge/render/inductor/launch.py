"""Chooses block sizes and the number of warps.

The compiler leaves out a mask if the number of elements is a multiple of its largest block, so every block
here is a power of two of at most that size.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from kernelllm_judge.core.syntax import call_name, constant_int
from kernelllm_judge.render.inductor.program import ROWS, KernelSource

LARGEST = {"XBLOCK": 4096, "YBLOCK": 1024, "ZBLOCK": 1024, "RBLOCK": 1 << 15, "R0_BLOCK": 1 << 15}
"""The compiler leaves out masks that no block up to this size needs."""
_MASKS = {"XBLOCK": "xmask", "YBLOCK": "ymask", "ZBLOCK": "zmask", "RBLOCK": "rmask", "R0_BLOCK": "r0_mask"}
_TILE = 32
"""The edge of a tile in a kernel over two dimensions, which transposes through it."""
_ELEMENTS = 1024
"""Most elements of a block that goes along one dimension."""
_COLUMNS = 2048
"""Most elements of a row that a program of a reduction holds at once."""


@dataclass(frozen=True)
class LaunchConfig:
    """How a kernel is launched."""

    blocks: Mapping[str, int]
    warps: int
    stages: int = 0
    """Of a template, ``num_stages``; 0 leaves it to Triton, as other kernels do."""


def choose(kernel: KernelSource, function: ast.FunctionDef) -> LaunchConfig:
    """Chooses block sizes for the constexpr parameters of a kernel, and its number of warps.

    Args:
        kernel: the kernel as read, with the sizes for which it was written.
        function: the kernel as it will be launched.
    """
    if kernel.kind == "template":
        chosen = kernel.chosen or {}
        return LaunchConfig({}, chosen.get("num_warps", 4), chosen.get("num_stages", 0))
    parameters = {a.arg for a in function.args.args if a.annotation is not None}
    hints = kernel.hints or {}
    fixed = fixed_sizes(function)
    warps = 0
    if kernel.chosen is not None:
        blocks, elements = dict(kernel.chosen), 0
        warps = blocks.pop("num_warps")
    elif kernel.kind == "pointwise":
        blocks, elements = _pointwise(hints, parameters)
    else:
        blocks, elements = _reduction(kernel, hints, fixed)
    if kernel.rows:
        blocks = {"NUM_STAGES": 1, **blocks, "XBLOCK": min(blocks["XBLOCK"], blocks.get(ROWS, kernel.rows))}
    for name in blocks:
        blocks[name] = min(blocks[name], LARGEST.get(name, 4096))
        if _mask_left_out(function, name):
            count = fixed.get({"XBLOCK": "xnumel", "YBLOCK": "ynumel"}.get(name, "r0_numel")) or fixed.get(
                "rnumel"
            )
            while count is not None and blocks[name] > 1 and count % blocks[name]:
                blocks[name] //= 2
    per_warp = 256 if kernel.kind == "pointwise" else 128
    most = 8 if kernel.kind == "pointwise" else 16
    warps = warps or min(max(_power_of_two(elements // per_warp), 2), most)
    return LaunchConfig({k: v for k, v in blocks.items() if k in parameters}, warps)


def _pointwise(hints: Mapping[str, int], parameters: set[str]) -> tuple[dict[str, int], int]:
    if "YBLOCK" not in parameters:
        # Enough programs to fill the GPU come before large blocks.
        count = hints.get("x", _ELEMENTS)
        size = min(_ELEMENTS, max(256, count // 128), max(count, 1))
        return {"XBLOCK": _power_of_two(size)}, size
    x, y = min(_TILE, hints.get("x", _TILE)), min(_TILE, hints.get("y", _TILE))
    if "ZBLOCK" in parameters:
        return {"XBLOCK": x, "YBLOCK": max(1, y // 4), "ZBLOCK": min(4, hints.get("z", 1))}, x * y
    return {"XBLOCK": x, "YBLOCK": y}, x * y


def _reduction(
    kernel: KernelSource, hints: Mapping[str, int], fixed: Mapping[str, int]
) -> tuple[dict[str, int], int]:
    rows, columns = hints.get("x", 1), hints.get("r", 1)
    if kernel.kind == "persistent":
        columns = fixed.get("R0_BLOCK", fixed.get("RBLOCK", columns))
        block_rows = 1 if kernel.inner else max(1, 4096 // columns // 4)
        # Rows that are short share a program, as long as enough programs are left.
        if kernel.inner and columns < 256:
            block_rows = max(block_rows, min(1024 // max(columns, 1), max(1, rows // 132)))
        block_rows = min(_power_of_two(block_rows), _power_of_two(max(rows, 1)))
        return {"XBLOCK": block_rows}, block_rows * columns
    if kernel.inner:
        block_rows, block_columns = 1, min(_power_of_two(columns), _COLUMNS)
    else:  # neighbours along x are neighbours in memory
        block_columns = min(_power_of_two(columns), _COLUMNS // 128)
        block_rows = min(64, _power_of_two(max(rows, 1)))
    return {
        "XBLOCK": block_rows,
        "R0_BLOCK": block_columns,
        "RBLOCK": block_columns,
    }, block_rows * block_columns


def _power_of_two(n: int) -> int:
    """Returns the largest power of two up to ``n``, at least 1."""
    return 1 << (max(n, 1).bit_length() - 1)


def fixed_sizes(function: ast.FunctionDef) -> dict[str, int]:
    """Returns the sizes that a kernel fixes in its body (``xnumel = 128``)."""
    found = {}
    for statement in function.body:
        target = (
            statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        )
        value = getattr(statement, "value", None)
        if isinstance(target, ast.Name) and value is not None and (number := constant_int(value)) is not None:
            found[target.id] = number
    return found


def _mask_left_out(function: ast.FunctionDef, block: str) -> bool:
    mask = _MASKS.get(block)
    if mask is None:
        return False
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == mask:
            return any(isinstance(n, ast.Call) and call_name(n) == "tl.full" for n in ast.walk(node.value))
    return True

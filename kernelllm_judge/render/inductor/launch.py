"""Says with which block sizes and how many warps kernels are launched.

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


@dataclass(frozen=True)
class LaunchConfig:
    """How a kernel is launched."""

    blocks: Mapping[str, int]
    warps: int
    stages: int = 0
    """Of a template, ``num_stages``; 0 leaves it to Triton, as other kernels do."""


def choose(kernel: KernelSource, function: ast.FunctionDef) -> LaunchConfig:
    """Returns block sizes for the constexpr parameters of a kernel, and its number of warps, as its compiler chose them."""
    blocks = dict(kernel.chosen)
    warps = blocks.pop("num_warps", 4)
    if kernel.kind == "template":
        return LaunchConfig({}, warps, blocks.get("num_stages", 0))
    fixed = fixed_sizes(function)
    if kernel.rows:
        blocks = {
            "NUM_STAGES": 1,
            **blocks,
            "XBLOCK": min(blocks.get("XBLOCK", 1), blocks.get(ROWS, kernel.rows)),
        }
    for name in blocks:
        blocks[name] = min(blocks[name], LARGEST.get(name, 4096))
        if _mask_left_out(function, name):
            count = fixed.get({"XBLOCK": "xnumel", "YBLOCK": "ynumel"}.get(name, "r0_numel"))
            while count is not None and blocks[name] > 1 and count % blocks[name]:
                blocks[name] //= 2
    parameters = {a.arg for a in function.args.args if a.annotation is not None}
    return LaunchConfig({k: v for k, v in blocks.items() if k in parameters}, warps)


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

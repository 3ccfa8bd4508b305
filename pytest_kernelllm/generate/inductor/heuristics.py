"""Asks TorchInductor for the block sizes and warps that it would try for each kernel of its output code."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch._inductor.runtime import hints, triton_heuristics

_NAMES = {
    name: getattr(hints, name) for name in ("ReductionHint", "TileHint", "AutotuneHint", "DeviceProperties")
}

_LINE = 32
"""Elements of four bytes in a line of a GPU's cache."""
_ELEMENTS = 2048
_LONGEST = 1 << 15
"""Elements of the longest row that a block may hold, as in Inductor."""


def configurations(source: str) -> dict[str, list[dict[str, int]]]:
    """Returns the configurations of each Triton kernel by its name, the most promising one first.

    A configuration has block sizes (``XBLOCK``…) and ``num_warps``; that of a loop ``num_stages``, too.

    Args:
        source: output code as TorchInductor has just written it.
    """
    return {name: list(_configurations(text)) for name, text in _kernels(ast.parse(source))}


def _kernels(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(name)],
                value=ast.Call(func=ast.Attribute(attr="triton"), args=[_, ast.Constant(text), *_]),
            ):
                yield name, ast.parse(str(text))


def _configurations(kernel: ast.Module) -> Iterator[dict[str, int]]:
    for function in kernel.body:
        for decorator in getattr(function, "decorator_list", ()):
            match decorator:
                case ast.Call(
                    func=ast.Attribute(attr="pointwise" | "reduction" | "persistent_reduction" as kind)
                ):
                    make = getattr(triton_heuristics, kind)
                    options = {
                        str(k.arg): _value(k.value)
                        for k in decorator.keywords
                        if k.arg not in (None, "filename")
                    }
                    if kind == "reduction" and _reads_rows_again(function, options["size_hints"]):
                        options["inductor_meta"]["add_persistent_rblock"] = True
                    configs = make(**options, return_configs=True)
                    if kind != "pointwise":
                        configs = sorted(configs, key=lambda each: _awkwardness(each.kwargs, options))
                    for config in configs:
                        # Triton pipelines no loop without a matrix product by itself, whatever the configuration says.
                        stages = {"num_stages": 1} if kind == "reduction" else {}
                        yield {**config.kwargs, "num_warps": config.num_warps, **stages}


def _reads_rows_again(function: ast.stmt, sizes: Mapping[str, int]) -> bool:
    """Returns whether a kernel loops several times over rows that one block may hold.

    For sizes known at compile time, Inductor tries such a block by itself; of free dimensions it knows no bound.
    """
    loops = sum(isinstance(node, ast.For) for node in ast.walk(function))
    return loops > 1 and len(sizes) == 2 and _ELEMENTS < sizes.get("r0_", 0) <= _LONGEST


def _awkwardness(blocks: Mapping[str, int], options: Mapping[str, Any]) -> tuple[bool, float]:
    """Orders the configurations of a reduction, where Inductor has several and would time them.

    Blocks that read whole lines of memory come first, and of those the ones of about 2,048 elements.
    """
    sizes = options["size_hints"]
    scores = options["inductor_meta"].get("tiling_scores") or {}
    columns = blocks.get("R0_BLOCK", sizes.get("r0_", 1))
    rows = blocks.get("XBLOCK", 1)
    along = ("x", rows) if scores.get("x", 0) > scores.get("r0_", 0) else ("r0_", columns)
    return along[1] < min(_LINE, sizes.get(along[0], 1)), abs(math.log2(rows * columns / _ELEMENTS))


def _value(node: ast.expr) -> Any:
    """Evaluates an expression that TorchInductor wrote."""
    code = compile(ast.Expression(node), "<inductor>", "eval")
    return eval(code, {**_NAMES, "inf": math.inf, "nan": math.nan})

"""Asks TorchInductor for the block sizes and warps that it would try for each kernel of its output code."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch._inductor.runtime import hints, triton_heuristics

from kernelllm_judge.core.syntax import stored_names

_NAMES = {
    name: getattr(hints, name) for name in ("ReductionHint", "TileHint", "AutotuneHint", "DeviceProperties")
}

_LINE = 32
"""Elements of four bytes in a line of a GPU's cache."""
_ELEMENTS = 2048
_MANY = 8
"""Values read for an element, as in pooling, from which on few elements a thread are faster: on an H200 they were in all
seven of KernelBench's problems with such kernels, by 7 to 47 %."""
_TEMPLATE = ("num_warps", "num_stages")
"""How a template's kernel is launched."""
_LONGEST = 1 << 15
"""Elements of the longest row that a block may hold, as in Inductor."""


def configurations(source: str) -> dict[str, list[dict[str, int]]]:
    """Returns the configurations of each Triton kernel by its name, the most promising one first.

    A configuration has block sizes (``XBLOCK``…) and ``num_warps``; that of a template, whose blocks are constants, ``num_warps``
    and ``num_stages``. Those of convolutions have none: with more warps than Inductor gives them, they were wrong in older
    versions of Triton.
    """
    return {name: list(_configurations(text)) for name, text in _kernels(ast.parse(source))}


def _kernels(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """Yields the name and the source of each Triton kernel in output code."""
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
                case ast.Call(func=ast.Attribute(attr="template")) if "KERNEL_H" not in stored_names(
                    function
                ):
                    options = _options(decorator)
                    yield {name: options[name] for name in _TEMPLATE if name in options}
                case ast.Call(
                    func=ast.Attribute(attr="pointwise" | "reduction" | "persistent_reduction" as kind)
                ):
                    make = getattr(triton_heuristics, kind)
                    options = _options(decorator)
                    if kind == "reduction" and _reads_rows_again(function, options["size_hints"]):
                        options["inductor_meta"]["add_persistent_rblock"] = True
                    configs = make(**options, return_configs=True)
                    if kind != "pointwise":
                        configs = sorted(configs, key=lambda each: _awkwardness(each.kwargs, options))
                    elif options["inductor_meta"].get("num_load", 0) >= _MANY:
                        configs = sorted(configs, key=_elements_a_thread)
                    for config in configs:
                        yield {**config.kwargs, "num_warps": config.num_warps}


def _options(decorator: ast.Call) -> dict[str, Any]:
    """Returns what Inductor says of a kernel in its decorator: ``size_hints``, ``reduction_hint`` and so on."""
    return {str(k.arg): _value(k.value) for k in decorator.keywords if k.arg not in (None, "filename")}


def _reads_rows_again(function: ast.stmt, sizes: Mapping[str, int]) -> bool:
    """Returns whether a kernel loops several times over rows that one block may hold.

    For sizes known at compile time, Inductor tries such a block by itself; of free dimensions it knows no bound.
    """
    loops = sum(isinstance(node, ast.For) for node in ast.walk(function))
    return loops > 1 and len(sizes) == 2 and _ELEMENTS < sizes.get("r0_", 0) <= _LONGEST


def _awkwardness(blocks: Mapping[str, int], options: Mapping[str, Any]) -> tuple[float, float]:
    """Orders the configurations of a reduction, where Inductor has several and would time them.

    Blocks that move whole lines of memory come first, and of those the ones of about 2,048 elements. A line may lie along
    rows for what is read, and along columns for what is written.
    """
    sizes = options["size_hints"]
    bytes_along = options["inductor_meta"].get("tiling_scores") or {"r0_": 1}
    block = {"x": blocks.get("XBLOCK", 1), "r0_": blocks.get("R0_BLOCK", sizes.get("r0_", 1))}
    moved = sum(
        score * max(1.0, min(_LINE, sizes[dim]) / block[dim])
        for dim, score in bytes_along.items()
        if dim in block and dim in sizes
    )
    elements = block["x"] * block["r0_"]
    return round(moved / max(sum(bytes_along.values()), 1), 1), abs(math.log2(elements / _ELEMENTS))


def _elements_a_thread(config: Any) -> float:
    return float(math.prod(config.kwargs.values()) / config.num_warps)


def _value(node: ast.expr) -> Any:
    """Evaluates an expression that TorchInductor wrote."""
    code = compile(ast.Expression(node), "<inductor>", "eval")
    return eval(code, {**_NAMES, "inf": math.inf, "nan": math.nan})

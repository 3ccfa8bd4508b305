"""Finds kernels that read long rows twice, and says how they are launched so that less of the second read is from memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from torch._inductor.runtime.hints import ReductionHint

from kernelllm_judge.render.inductor.backwards import goes_backwards
from kernelllm_judge.render.inductor.program import AHEAD, BACKWARDS, PARTS
from kernelllm_judge.render.inductor.rows_read_twice import shares_rows
from pytest_kernelllm.generate.inductor.heuristics import kernels, options_of

_LONG = 1 << 15
"""Columns from which on rows are long: shorter ones fit into the registers of a block."""
_LONGEST = 1 << 22
"""Columns from which on a row does not fit into L2, so that nothing is gained by sharing it."""
_ROWS = 128
"""Rows from which on a program for each keeps a GPU busy."""
_PART = 1 << 14
"""Columns of a part. For softmax over 393,216 columns, 2**14 in four blocks of 16 warps were the fastest on an H200: 3.7 ms, in
place of 4.7 with a program for each row, and of 4.5 with 2**13 or 2**15."""
_AHEAD = 128
"""Parts that are summed before the first of them is read again: there it took 4.6 ms with 512, and 3.9 with 32."""


def long_rows(source: str, how: str) -> dict[str, dict[str, int]]:
    """Returns the configuration of each such kernel, by its name.

    Args:
        source: output code of TorchInductor.
        how: "in parts", for programs that share a row, or "backwards", for few rows at once, read from their ends.
    """
    found = {}
    for name, kernel in kernels(ast.parse(source)):
        for function, options in _reductions(kernel):
            rows, columns = _shape(options)
            if how == "in parts" and _LONG < columns <= _LONGEST and shares_rows(function):
                found[name] = _in_parts(columns)
            if how == "backwards" and columns > _LONG and rows >= _ROWS and goes_backwards(function):
                found[name] = _backwards()
    return found


def _in_parts(columns: int) -> dict[str, int]:
    return {
        "XBLOCK": 1,
        "R0_BLOCK": _PART // 4,
        "num_warps": 16,
        "num_stages": 1,
        PARTS: columns // _PART,
        AHEAD: max(1, _AHEAD * _PART // columns),
    }


def _backwards() -> dict[str, int]:
    # With 32 warps and 16 columns a thread, a processor has one row at a time.
    return {"XBLOCK": 1, "R0_BLOCK": 1 << 14, "num_warps": 32, "num_stages": 1, BACKWARDS: 1}


def _reductions(kernel: ast.Module) -> Iterator[tuple[ast.FunctionDef, dict[str, Any]]]:
    """Yields the function that loops over rows, and its decorator's options."""
    for function in kernel.body:
        for decorator in getattr(function, "decorator_list", ()):
            match decorator:
                case ast.Call(func=ast.Attribute(attr="reduction")) if isinstance(function, ast.FunctionDef):
                    yield function, options_of(decorator)


def _shape(options: dict[str, Any]) -> tuple[int, int]:
    """Returns the number of rows and of columns, rounded up to powers of two; zeros where rows do not lie in one piece."""
    sizes = options["size_hints"]
    inner = options["reduction_hint"] == ReductionHint.INNER and sizes.keys() == {"x", "r0_"}
    return (int(sizes["x"]), int(sizes["r0_"])) if inner else (0, 0)

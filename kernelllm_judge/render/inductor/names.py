"""Chooses readable names for kernels, their parameters, indices and temporaries."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable, Mapping

from kernelllm_judge.core.syntax import call_name
from kernelllm_judge.render.inductor.program import KernelSource

_POINTWISE = {
    "xnumel": "n_elements",
    "XBLOCK": "BLOCK",
    "xoffset": "start",
    "xindex": "offsets",
    "xmask": "mask",
}
_TILES = {
    "xnumel": "n_columns",
    "ynumel": "n_rows",
    "XBLOCK": "BLOCK_COLUMNS",
    "YBLOCK": "BLOCK_ROWS",
    "xoffset": "column_start",
    "yoffset": "row_start",
    "xindex": "columns",
    "yindex": "rows",
    "xmask": "column_mask",
    "ymask": "row_mask",
}
_REDUCTION = {
    "xnumel": "n_rows",
    "XBLOCK": "BLOCK_ROWS",
    "xoffset": "row_start",
    "xindex": "rows",
    "xmask": "row_mask",
    "split_size": "n_own_rows",
    **{f"accum{number}": "column_total" for number in range(8)},
    **{f"{r}numel": "n_columns" for r in ("r", "r0_")},
    **{f"{r}BLOCK": "BLOCK_COLUMNS" for r in ("R", "R0_")},
    **{f"{r}offset": "column_start" for r in ("r", "r0_")},
    **{f"{r}index": "columns" for r in ("r", "r0_")},
    **{f"{r}base": "column_range" for r in ("r", "r0_")},
    **{f"{r}mask": "column_mask" for r in ("r", "r0_")},
}
_RESULTS = {
    "tl.sum": "total",
    "nan_max": "largest",
    "nan_min": "smallest",
    "tl.max": "largest",
    "tl.min": "smallest",
    "tl.cumsum": "running",
}


def as_identifier(text: str) -> str:
    """Turns an expression into an identifier.

    ``self.fc.weight`` becomes ``fc_weight``, ``self[0].bias`` ``arg_0_bias`` and ``embeddings[0]``
    ``embeddings_0``.
    """
    name = re.sub(r"\W+", "_", re.sub(r"^self\b\.?", "", text)).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"arg_{name}"


class Names:
    """Hands out unique names."""

    def __init__(self, taken: Iterable[str]) -> None:
        """``taken``: names that are never handed out."""
        self.taken = set(taken)

    def take(self, name: str) -> str:
        """Returns the name itself or, if it is taken, the name with the first free number."""
        free, number = name, 0
        while free in self.taken:
            number += 1
            free = f"{name}_{number}"
        self.taken.add(free)
        return free


def kernel_names(
    kernel: KernelSource, function: ast.FunctionDef, arguments: Mapping[str, str], reserved: Iterable[str]
) -> dict[str, str]:
    """Chooses new names for the parameters and local variables of a kernel."""
    parameters = [a.arg for a in function.args.args]
    known = dict(_POINTWISE if kernel.kind in ("pointwise", "template") else _REDUCTION)
    if kernel.kind == "pointwise" and "YBLOCK" in parameters:
        known = dict(_TILES)
    names = Names({"tl", "triton", *reserved})
    result: dict[str, str] = {}
    for parameter in parameters:
        if parameter in known:
            result[parameter] = names.take(known[parameter])
        elif parameter in arguments:
            suffix = "_ptr" if "ptr" in parameter else ""
            result[parameter] = names.take(arguments[parameter] + suffix)
        else:
            result[parameter] = names.take(parameter)
    for node in [
        n
        for n in _in_order(function.body)
        if isinstance(n, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For)
    ]:
        for target in _target_names(node):
            if target not in result:
                result[target] = names.take(_local(target, node, known, result))
    return result


def _in_order(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.For | ast.If):
            yield from _in_order(statement.body)
            yield from _in_order(statement.orelse)


def _target_names(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]


def _local(target: str, node: ast.stmt, known: Mapping[str, str], renamed: Mapping[str, str]) -> str:
    if target in known:
        return known[target]
    if not re.fullmatch(r"_?tmp\d+(_\w+)?", target):
        return target
    value = getattr(node, "value", None)
    if target.startswith("_tmp"):
        return "acc"
    if value is None:
        return "t"
    for call in (n for n in ast.walk(value) if isinstance(n, ast.Call)):
        name = call_name(call)
        if name == "tl.load":
            pointer = next((n.id for a in call.args[:1] for n in ast.walk(a) if isinstance(n, ast.Name)), "")
            return renamed.get(pointer, "value_ptr").removesuffix("_ptr")
        if name in _RESULTS:
            return _RESULTS[name]
    return "t"

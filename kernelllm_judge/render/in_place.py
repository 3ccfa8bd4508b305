"""Spells updates of buffers as the methods that they are: ``norm.steps += 1`` binds the attribute anew, and to the same tensor."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from kernelllm_judge.core.records import Case, TensorSpec

_METHODS = {ast.Add: "add_", ast.Sub: "sub_", ast.Mult: "mul_", ast.Div: "div_"}


def in_place(code: str, cases: Sequence[Case]) -> str:
    """Returns a module's text with ``+=`` and its like on the target's parameters and buffers as calls of ``add_`` and its like."""
    tensors = {
        name.rpartition(".")[2]
        for case in cases
        for name, spec in case.domain.attributes.items()
        if isinstance(spec, TensorSpec)
    }
    found = [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.AugAssign)
        and isinstance(node.target, ast.Attribute)
        and node.target.attr in tensors
        and type(node.op) in _METHODS
    ]
    lines = code.split("\n")
    for node in sorted(found, key=lambda node: -node.lineno):
        before, after = lines[node.lineno - 1], lines[(node.end_lineno or node.lineno) - 1]
        call = f"{ast.unparse(node.target)}.{_METHODS[type(node.op)]}({ast.unparse(node.value)})"
        start, end = before.encode()[: node.col_offset], after.encode()[node.end_col_offset :]
        lines[node.lineno - 1 : node.end_lineno] = [start.decode() + call + end.decode()]
    return "\n".join(lines)

"""Turns on Triton's software pipelining: loops load the next blocks while they compute with one."""

from __future__ import annotations

import ast
import copy

from kernelllm_judge.core.syntax import call_name


def with_pipelined_loops(function: ast.FunctionDef, stages: int) -> ast.FunctionDef:
    """Copies a kernel and sets how many blocks its loops have under way; with 1 they load none ahead."""
    result = copy.deepcopy(function)
    for node in ast.walk(result):
        if (
            isinstance(node, ast.For)
            and isinstance(node.iter, ast.Call)
            and call_name(node.iter) == "tl.range"
        ):
            node.iter.keywords = [
                *(keyword for keyword in node.iter.keywords if keyword.arg != "num_stages"),
                ast.keyword("num_stages", ast.Constant(stages)),
            ]
    return ast.fix_missing_locations(result)

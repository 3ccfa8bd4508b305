"""Removes from the kernel of a template the branches that its constants decide."""

from __future__ import annotations

import ast
import copy
from collections import Counter

from pytest_kernelllm.core.syntax import constant_int, read_names


def without_decided_branches(function: ast.FunctionDef) -> ast.FunctionDef:
    """Copies a kernel, with each ``if`` on constant integers replaced by the branch that it takes."""
    function = copy.deepcopy(function)
    constants = _constants(function)
    function.body = [kept for statement in function.body for kept in _taken(statement, constants)]
    return function


def _constants(function: ast.FunctionDef) -> dict[str, int]:
    """Returns the names that are assigned once, to an integer."""
    found: dict[str, int] = {}
    stored = Counter(
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )
    for statement in function.body:
        match statement:
            case ast.Assign(targets=[ast.Name(name)], value=value):
                number = constant_int(value)
            case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
                number = constant_int(value)
            case _:
                continue
        if number is not None and stored[name] == 1:
            found[name] = number
    return found


def _taken(statement: ast.stmt, constants: dict[str, int]) -> list[ast.stmt]:
    if not isinstance(statement, ast.If) or not read_names(statement.test) <= constants.keys():
        return [statement]
    test = compile(ast.Expression(statement.test), "<template>", "eval")
    return statement.body if eval(test, {"__builtins__": {}}, constants) else statement.orelse

"""Simplifies the kernel of a template: without branches that its constants decide, and without rounding a result on the way."""

from __future__ import annotations

import ast
import copy

from kernelllm_judge.core.syntax import binding_counts, read_names
from kernelllm_judge.render.inductor.launch import fixed_sizes


def without_decided_branches(function: ast.FunctionDef) -> ast.FunctionDef:
    """Copies a kernel, with each ``if`` on constant integers replaced by the branch that it takes."""
    function = copy.deepcopy(function)
    stored = binding_counts(function)
    constants = {name: size for name, size in fixed_sizes(function).items() if stored[name] == 1}
    function.body = [kept for statement in function.body for kept in _taken(statement, constants)]
    return function


def without_rounding(function: ast.FunctionDef) -> ast.FunctionDef:
    """Copies a kernel, with its sum in float32 until it is stored, where what comes after it only computes with it in float32.

    The template rounds it to the dtype of its result first, as if it were stored. Added to a bias of the other sign, what was
    rounded off may be all that is left.
    """
    function = copy.deepcopy(function)
    for statement in function.body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(name)], value=ast.Call(func=ast.Attribute(ast.Name("acc"), "to"))
            ):
                uses = _Uses(name)
                uses.visit(copy.deepcopy(function))
                if not uses.others:
                    uses.visit(function)
                    statement.value = ast.Name("acc", ast.Load())
    return function


class _Uses(ast.NodeTransformer):
    """Leaves out conversions of a name to float32, and finds what else reads it but stores."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.others = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Visits a conversion, a store or another call."""
        match node:
            case ast.Call(func=ast.Attribute(ast.Name(name), "to"), args=[ast.Attribute(attr="float32")]):
                if name == self.name:
                    return ast.Name(name, ast.Load())
            case ast.Call(func=ast.Attribute(ast.Name("tl"), "store"), args=[_, ast.Name(name), *_]):
                if name == self.name:
                    return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Notes a use that is neither."""
        self.others |= node.id == self.name and isinstance(node.ctx, ast.Load)
        return node


def _taken(statement: ast.stmt, constants: dict[str, int]) -> list[ast.stmt]:
    if not isinstance(statement, ast.If) or not read_names(statement.test) <= constants.keys():
        return [statement]
    test = compile(ast.Expression(statement.test), "<template>", "eval")
    return statement.body if eval(test, {"__builtins__": {}}, constants) else statement.orelse

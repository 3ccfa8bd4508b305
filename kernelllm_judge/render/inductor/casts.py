"""Removes conversions to float32 of values that are float32 already.

A compiler writes them where it would have rounded a value to the module's dtype. Without them the kernels for
bfloat16 and float32 differ only in their loads, and one text can serve both.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from kernelllm_judge.core.syntax import call_name, expression, read_names

_ROUNDED = {"exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "sqrt_rn", "rsqrt", "erf", "sigmoid"}
_OF_TL = {
    "floor",
    "ceil",
    "abs",
    "sum",
    "max",
    "min",
    "cumsum",
    "broadcast_to",
    "expand_dims",
    "reshape",
} | _ROUNDED
_EXTREMES = {"maximum", "minimum"}
_DEVICE = {
    "nan_max",
    "nan_min",
    "tanh",
    "sinh",
    "cosh",
    "tan",
    "expm1",
    "log1p",
    "power",
    "trunc",
} | _EXTREMES


def drop_casts(
    body: Iterable[ast.stmt], pointers: Collection[str] = (), scalars: Collection[str] = ()
) -> None:
    """Removes redundant conversions to float32 from a block of statements, in place.

    Args:
        body: the statements.
        pointers: the names of pointers to float32.
        scalars: the names of float parameters.
    """
    _Casts(pointers, scalars).block(body)


def cast_sizes(function: ast.FunctionDef) -> None:
    """Replaces ``n.to(...)`` of sizes by ``tl.cast(n, ...)``, in place, as a size of 1 is a constant without methods.

    Nor can such a constant be broadcast, so a size is a tensor before.
    """
    _Sizes({a.arg for a in function.args.args if "ptr" not in a.arg}).visit(function)


def base_pointer(call: ast.Call) -> str:
    """Returns the pointer that a load, store or atomic works on: ``in_ptr0`` for ``in_ptr0 + (x0)``."""
    node = call.args[0] if call.args else None
    while isinstance(node, ast.BinOp):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""


class _Sizes(ast.NodeTransformer):
    def __init__(self, sizes: Collection[str]) -> None:
        self.sizes = sizes

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if call_name(node) == "tl.broadcast_to" and self._is_size(node.args[0]):
            node.args[0] = ast.Call(expression("tl.cast"), [node.args[0], expression("tl.int64")], [])
        elif (
            isinstance(node.func, ast.Attribute) and node.func.attr == "to" and self._is_size(node.func.value)
        ):
            return ast.Call(expression("tl.cast"), [node.func.value, *node.args], node.keywords)
        return node

    def _is_size(self, node: ast.expr) -> bool:
        names = read_names(node)
        return bool(names) and names <= set(self.sizes)


class _Casts(ast.NodeTransformer):
    def __init__(self, pointers: Collection[str], scalars: Collection[str]) -> None:
        self.pointers = pointers
        self.scalars = scalars
        self.floats: set[str] = set()

    def block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.For | ast.If):
                self.block(statement.body)
                self.block(statement.orelse)
                continue
            self.visit(statement)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                (self.floats.add if self.is_float(statement.value) else self.floats.discard)(name)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _casts_to_float(node) and isinstance(node.func, ast.Attribute) and self.is_float(node.func.value):
            return node.func.value
        return node

    def is_float(self, node: ast.expr) -> bool:
        """Whether an expression is known to be a float32 tensor."""
        if isinstance(node, ast.Name):
            return node.id in self.floats
        if isinstance(node, ast.Subscript):
            return self.is_float(node.value)
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.USub) and self.is_float(node.operand)
        if isinstance(node, ast.BinOp):
            return self._agree([node.left, node.right])
        if not isinstance(node, ast.Call):
            return False
        if _casts_to_float(node):
            return True
        name = call_name(node)
        if name == "tl.cast":
            return [ast.unparse(a) for a in node.args[1:2]] == ["tl.float32"]
        if name == "tl.full":
            return [ast.unparse(a) for a in node.args[-1:]] == ["tl.float32"]
        if name == "tl.load":
            return base_pointer(node) in self.pointers
        if name == "tl.where":
            return self._agree(node.args[1:])
        module, _, short = name.rpartition(".")
        if short in (_OF_TL if module == "tl" else _DEVICE):
            floating = bool(node.args) and self.is_float(node.args[0])
            return floating and (short not in _EXTREMES or self._agree(node.args))
        return False

    def _agree(self, nodes: list[ast.expr]) -> bool:
        """Whether all nodes are float32 tensors or numbers, and at least one is a tensor."""
        tensors = [n for n in nodes if not isinstance(n, ast.Constant) and not self._scalar(n)]
        return bool(tensors) and all(self.is_float(n) for n in tensors)

    def _scalar(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.scalars


def _casts_to_float(node: ast.Call) -> bool:
    return (
        isinstance(node.func, ast.Attribute)
        and node.func.attr == "to"
        and [ast.unparse(a) for a in node.args] == ["tl.float32"]
        and not node.keywords
    )

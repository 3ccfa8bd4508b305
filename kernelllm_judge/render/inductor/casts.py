"""Removes conversions to float32 of values that are float32 already.

A compiler writes them where it would have rounded a value to the module's dtype. Without them the kernels for
bfloat16 and float32 differ only in their loads, and one text can serve both.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from kernelllm_judge.core.syntax import call_name

_KEEP_FLOAT = frozenset(
    {
        "exp",
        "exp2",
        "log",
        "log2",
        "sin",
        "cos",
        "sqrt",
        "sqrt_rn",
        "rsqrt",
        "erf",
        "sigmoid",
        "floor",
        "ceil",
    }
    | {"abs", "sum", "max", "min", "cumsum", "broadcast_to", "expand_dims", "reshape", "nan_max", "nan_min"}
    | {"maximum", "minimum", "tanh", "sinh", "cosh", "tan", "expm1", "log1p", "pow", "trunc"}
)
"""Functions whose result is float32 if all their tensors are."""


def drop_casts(body: Iterable[ast.stmt], pointers: Collection[str], scalars: Collection[str]) -> None:
    """Removes redundant conversions to float32 from statements, in place, given pointers to float32 and float parameters."""
    _Casts(pointers, scalars).block(body)


def base_pointer(call: ast.Call) -> str:
    """Returns the pointer that a load, store or atomic works on: ``in_ptr0`` for ``in_ptr0 + (x0)``."""
    node = call.args[0] if call.args else None
    while isinstance(node, ast.BinOp):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""


class _Casts(ast.NodeTransformer):
    def __init__(self, pointers: Collection[str], scalars: Collection[str]) -> None:
        self.pointers, self.scalars = pointers, scalars
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
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="to")) if casts_to_float(node):
                return value if self.is_float(value) else node
        return node

    def is_float(self, node: ast.expr) -> bool:
        """Whether an expression is known to be a float32 tensor."""
        match node:
            case ast.Name(id=name):
                return name in self.floats
            case ast.Subscript(value=value) | ast.UnaryOp(op=ast.USub(), operand=value):
                return self.is_float(value)
            case ast.BinOp(left=left, right=right):
                return self._agree([left, right])
            case ast.Call(args=args):
                name = call_name(node)
                if casts_to_float(node) or name == "tl.load":
                    return name != "tl.load" or base_pointer(node) in self.pointers
                if name in ("tl.cast", "tl.full"):
                    return ast.unparse(args[-1]) == "tl.float32" if args else False
                if name == "tl.where":
                    return self._agree(args[1:])
                module, _, short = name.rpartition(".")
                return short in _KEEP_FLOAT and self._agree(args if module != "tl" else args[:1])
        return False

    def _agree(self, nodes: list[ast.expr]) -> bool:
        """Whether all nodes are float32 tensors or numbers, and at least one is a tensor."""
        tensors = [n for n in nodes if not isinstance(n, ast.Constant) and not self._scalar(n)]
        return bool(tensors) and all(self.is_float(n) for n in tensors)

    def _scalar(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.scalars


def casts_to_float(node: ast.Call) -> bool:
    """Whether a call is ``x.to(tl.float32)``."""
    to = isinstance(node.func, ast.Attribute) and node.func.attr == "to" and not node.keywords
    return to and [ast.unparse(a) for a in node.args] == ["tl.float32"]

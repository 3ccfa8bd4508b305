"""Replaces fixed devices: a kernel module allocates on its input's device."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from kernelllm_judge.core.syntax import RemovingTransformer, call_name, dotted, expression, parameters
from kernelllm_judge.render.errors import RenderError

_NO_EFFECT = frozenset(
    {"torch.cuda.synchronize", "torch.cuda.set_device", "torch.cuda.empty_cache", "torch.cuda.init"}
)
_TENSOR_ONLY = frozenset(
    {"contiguous", "data_ptr", "device", "dim", "dtype", "is_contiguous", "is_cuda", "ndim"}
    | {"new_empty", "numel", "reshape", "shape", "size", "stride", "view"}
)


def is_device(node: ast.AST, names: Collection[str] = ()) -> bool:
    """Whether an expression is a CUDA device: ``"cuda"``, ``torch.device("cuda:0")``, one of ``names``."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and re.fullmatch(r"cuda(:\d+)?", node.value) is not None
    if isinstance(node, ast.Call):
        if call_name(node) == "torch.device":
            return bool(node.args) and is_device(node.args[0], names)
        return call_name(node) == "torch.cuda.current_device"
    if isinstance(node, ast.IfExp):
        return is_device(node.body, names)
    return dotted(node) in names


def tensor_parameter(function: ast.FunctionDef) -> str | None:
    """Returns the first parameter that the body uses as a tensor, or None."""
    used = {
        node.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in _TENSOR_ONLY
    }
    return next((p.arg for p in parameters(function.args) if p.arg in used - {"self", "ctx"}), None)


class OnInputDevice(RemovingTransformer):
    """Rewrites a host function so that it uses the device of its input."""

    def __init__(self, tensor: str | None, device_names: Collection[str] = ()) -> None:
        """Prepares to rewrite a function."""
        self._tensor, self._names = tensor, device_names

    def _here(self, node: ast.expr) -> ast.expr:
        if self._tensor is None:
            raise RenderError(
                f"Line {node.lineno} names a CUDA device in a function without a tensor argument whose device it could use."
            )
        return ast.copy_location(expression(f"{self._tensor}.device"), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrites ``x.cuda()``, ``x.to("cuda")``, ``device="cuda"`` and other calls that take a device."""
        if is_device(node, self._names):
            return self._here(node)
        name = call_name(node)
        if name == "torch.cuda.is_available":
            return ast.copy_location(ast.Constant(True), node)
        if isinstance(node.func, ast.Attribute) and name != "torch.cuda":
            if node.func.attr == "cuda":
                return self.visit(node.func.value)  # type: ignore[no-any-return]  # typeshed: visit() -> Any
            if node.func.attr == "to":
                return self._to(node, node.func)
        for keyword in node.keywords:
            if keyword.arg == "device" and is_device(keyword.value, self._names):
                keyword.value = self._here(keyword.value)
        return self.generic_visit(node)

    def _to(self, node: ast.Call, function: ast.Attribute) -> ast.AST:
        args = [a for a in node.args if not is_device(a, self._names)]
        keywords = [k for k in node.keywords if not (k.arg == "device" and is_device(k.value, self._names))]
        if len(args) + len(keywords) < len(node.args) + len(node.keywords):
            node.args, node.keywords = args, [k for k in keywords if k.arg != "non_blocking"]
            if not node.args and not node.keywords:
                return self.visit(function.value)  # type: ignore[no-any-return]  # typeshed: visit() -> Any
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replaces ``x.is_cuda`` by True, as it holds for every input."""
        self.generic_visit(node)
        return ast.copy_location(ast.Constant(True), node) if node.attr == "is_cuda" else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replaces a constant that holds a device."""
        return self._here(node) if node.id in self._names and isinstance(node.ctx, ast.Load) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Replaces ``x.device.type == "cuda"`` by True."""
        self.generic_visit(node)
        left, right = node.left, node.comparators[0]
        about_type = (dotted(left) or "").endswith("device.type") and is_device(right)
        if about_type and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            return ast.copy_location(ast.Constant(isinstance(node.ops[0], ast.Eq)), node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Removes operands that are decided."""
        self.generic_visit(node)
        decisive = isinstance(node.op, ast.Or)
        node.values = [
            v for v in node.values if not (isinstance(v, ast.Constant) and v.value is not decisive)
        ]
        if any(isinstance(v, ast.Constant) and v.value is decisive for v in node.values):
            return ast.copy_location(ast.Constant(decisive), node)
        if not node.values:
            return ast.copy_location(ast.Constant(not decisive), node)
        return node.values[0] if len(node.values) == 1 else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Evaluates ``not True``."""
        self.generic_visit(node)
        decided = isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant)
        if decided and isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, bool):
            return ast.copy_location(ast.Constant(not node.operand.value), node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST | None:
        """Removes an assertion that holds."""
        self.generic_visit(node)
        return None if isinstance(node.test, ast.Constant) and node.test.value is True else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Replaces an ``if`` by its branch if the test is decided."""
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant) and isinstance(node.test.value, bool):
            return node.body if node.test.value else node.orelse
        return node

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        """Removes ``with torch.cuda.device(...)``, as there is only one device."""
        node.items = [
            item
            for item in node.items
            if not (
                isinstance(item.context_expr, ast.Call)
                and call_name(item.context_expr) in ("torch.cuda.device", "torch.cuda.device_of")
            )
        ]
        self.generic_visit(node)
        return node if node.items else [part for part in node.body if not isinstance(part, ast.Pass)]

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Removes calls that only concern the device, such as ``torch.cuda.synchronize()``."""
        if isinstance(node.value, ast.Call) and call_name(node.value) in _NO_EFFECT:
            return None
        return self.generic_visit(node)

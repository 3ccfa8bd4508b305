"""Patches Triton's interpreter to read a kernel's Python as the compiler does, where the two differ.

- ``and``, ``or`` and ``not`` of tensors combine their elements.
- ``max`` and ``min`` of tensors are ``tl.maximum`` and ``tl.minimum``.
- Comparisons and conditions of plain numbers are announced to whoever records decisions.
- ``.value`` of a constant is the constant.
- Functions of ``triton.language`` and libdevice work under any name by which a module has imported them.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter
from triton.runtime.interpreter import ASTTransformer, FunctionRewriter, interpreter_semantic

_HELPERS = "kernelllm_reading"

_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}
_BY_SIGN = dict(_COMPARISONS.values())


def note_numbers(kind: str, left: Any, right: Any, outcome: Any) -> None:
    """Is told of each comparison and condition of plain numbers; ``sites`` replaces it while it records."""


def read_as_compiler() -> None:
    """Patches this process's interpreter, before any kernel is imported.

    Triton patches its language anew for every launch, and only in its own modules; one patch that stays
    also reaches a kernel's own names for its functions, and is faster.
    """
    _rewrite()
    scope = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_builtin(cuda_libdevice, interpreter.interpreter_builder, scope)
    for name in _functions(libdevice):
        setattr(libdevice, name, getattr(cuda_libdevice, name, None) or _missing(name))
    # Triton before 3.7 converts arrays of one element in a way that NumPy from 2.5 on refuses.
    tl.tensor.__index__ = lambda tensor: int(tensor.handle.data.item())
    kept = SimpleNamespace(restore=lambda: None)
    interpreter._patch_lang = lambda function: kept


def _rewrite() -> None:
    define = FunctionRewriter._compile_and_exec
    helpers = SimpleNamespace(
        both=_both,
        either=_either,
        negated=_negated,
        value=_value,
        extreme=_extreme,
        compared=_compared,
        condition=_condition,
    )
    names = {_HELPERS: helpers, "interpreter_semantic": interpreter_semantic}

    def define_with_helpers(rewriter: Any, tree: ast.AST) -> Any:
        rewriter.fn.__globals__.update(names)  # also where the kernel's module has such names itself
        return define(rewriter, tree)

    FunctionRewriter.ast_transformer = Rewriter()
    FunctionRewriter._compile_and_exec = define_with_helpers


class Rewriter(ASTTransformer):  # type: ignore[misc]  # Triton has no types
    """Replaces operations that Python does not leave to the operands."""

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Visits the value as well, which the class that this one extends leaves out."""
        node.value = self.visit(node.value)
        return super().visit_Assign(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Replaces ``and`` and ``or``; operands are passed as functions, for constants may decide early."""
        self.generic_visit(node)
        operands = [ast.Lambda(_no_arguments(), value) for value in node.values]
        return _call("both" if isinstance(node.op, ast.And) else "either", operands, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Replaces ``not``."""
        self.generic_visit(node)
        return _call("negated", [node.operand], node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Replaces comparisons of two operands, for ``note_numbers``."""
        self.generic_visit(node)
        if len(node.ops) > 1 or type(node.ops[0]) not in _COMPARISONS:
            return node
        sign = ast.Constant(_COMPARISONS[type(node.ops[0])][0])
        return _call("compared", [sign, node.left, *node.comparators], node)

    def visit_If(self, node: Any) -> ast.AST:
        """Replaces conditions, for ``note_numbers``."""
        plain = isinstance(node.test, ast.Name | ast.Attribute | ast.BinOp)
        self.generic_visit(node)
        if plain:
            node.test = _call("condition", [node.test], node.test)
        return node  # type: ignore[no-any-return]

    visit_IfExp = visit_While = visit_If

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replaces ``constant.value``: the interpreter passes constants as they are."""
        self.generic_visit(node)
        if node.attr != "value" or not isinstance(node.ctx, ast.Load):
            return node
        return _call("value", [node.value], node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replaces ``max`` and ``min``."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
            node.func = _call("extreme", [node.func], node)
        return node


def _call(helper: str, arguments: list[Any], node: ast.expr) -> ast.expr:
    function = ast.Attribute(ast.Name(_HELPERS, ast.Load()), helper, ast.Load())
    return ast.copy_location(ast.Call(function, arguments, []), node)


def _no_arguments() -> ast.arguments:
    return ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _both(*operands: Any) -> Any:
    return _joined(operands, False, "logical_and")


def _either(*operands: Any) -> Any:
    return _joined(operands, True, "logical_or")


def _joined(operands: tuple[Any, ...], decisive: bool, method: str) -> Any:
    """Combines tensors; a constant decides, or has no effect."""
    tensors: list[Any] = []
    for operand in operands:
        value = operand()
        if isinstance(value, tl.tensor):
            tensors.append(value)
        elif bool(value) is decisive:
            return value
    if not tensors:
        return value
    while len(tensors) > 1:
        right, left = tensors.pop(), tensors.pop()
        tensors.append(getattr(interpreter_semantic, method)(left, right))
    return tensors[0]


def _negated(value: Any) -> Any:
    return interpreter_semantic.not_(value) if isinstance(value, tl.tensor) else not value


def _compared(sign: str, left: Any, right: Any) -> Any:
    outcome = _BY_SIGN[sign](left, right)
    if not isinstance(outcome, tl.tensor):
        note_numbers(sign, left, right, outcome)
    return outcome


def _condition(value: Any) -> Any:
    if not isinstance(value, tl.tensor):
        note_numbers("if", value, 0, bool(value))
    return value


def _value(constant: Any) -> Any:
    return getattr(constant, "value", constant) if not isinstance(constant, tl.tensor) else constant.value


def _extreme(function: Any) -> Any:
    """Returns what a kernel calls as ``max`` or ``min``."""
    named = {builtins.max: tl.maximum, builtins.min: tl.minimum}
    try:
        elementwise = named.get(function)
    except TypeError:  # the kernel's own, without a hash
        elementwise = None
    if elementwise is None:
        return function

    def extreme(*values: Any) -> Any:
        if not any(isinstance(value, tl.tensor) for value in values):
            return function(*values)
        result = values[0]
        for value in values[1:]:
            result = elementwise(result, value)
        return result

    return extreme


def _functions(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def _missing(name: str) -> Any:
    def missing(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"CUDA's libdevice has no `{name}`")

    return missing

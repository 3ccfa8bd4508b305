"""Small helpers over Python syntax trees that discovery, prompts, rendering and edits share.

Standard library only, and cheap to import: the pre-commit hooks load it. The judge's static check keeps
helpers of its own, because what decides about untrusted code should not change when something else does.
"""

from __future__ import annotations

import ast
import copy
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from kernelllm_runtime.source.syntax import (
    COMPREHENSIONS as COMPREHENSIONS,
    Chain as Chain,
    Import as Import,
    assigned_names as assigned_names,
    chain_of as chain_of,
    expression as expression,
    imports_of as imports_of,
    is_docstring as is_docstring,
    parameters as parameters,
)

Node = TypeVar("Node", bound=ast.AST)

# --------------------------------------------------------------------------- dotted names and literals


def dotted(node: ast.AST) -> str | None:
    """Returns ``"a.b.c"`` for the expression ``a.b.c``, and None for any other expression."""
    chain = chain_of(node)
    return None if chain is None else ".".join(chain)


def call_name(call: ast.Call) -> str:
    """Returns ``"tl.load"`` for ``tl.load(...)``, and an empty string if no dotted name is called."""
    return dotted(call.func) or ""


def literal(value: object) -> ast.expr:
    """Writes a value for which ``is_literal`` holds as an expression; ``inf`` becomes ``float('inf')``."""
    if isinstance(value, tuple):
        return ast.Tuple([literal(item) for item in value], ast.Load())
    if isinstance(value, float) and not math.isfinite(value):
        return ast.Call(ast.Name("float", ast.Load()), [ast.Constant(repr(value))], [])
    return expression(repr(value))


def is_literal(value: Any) -> bool:
    """Whether ``literal`` can write a value: None, a bool, number or string, or a tuple of such values."""
    if isinstance(value, tuple):
        return all(is_literal(item) for item in value)
    return value is None or type(value) in (bool, int, float, str)


_INTEGER_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def constant_int(node: ast.expr) -> int | None:
    """Evaluates an integer expression without names; returns None for any other expression."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant_int(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and type(node.op) in _INTEGER_OPERATIONS:
        left, right = constant_int(node.left), constant_int(node.right)
        if left is None or right is None or (right == 0 and isinstance(node.op, ast.FloorDiv | ast.Mod)):
            return None
        return _INTEGER_OPERATIONS[type(node.op)](left, right)
    return None


# --------------------------------------------------------------------------- functions and statements


def defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    """Returns the default of each parameter that has one, by name."""
    positional = [*arguments.posonlyargs, *arguments.args]
    found = dict(zip([p.arg for p in positional[::-1]], arguments.defaults[::-1], strict=False))
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            found[parameter.arg] = default
    return found


def is_jitted(node: ast.AST) -> bool:
    """Whether a node is a function under ``@triton.jit`` or ``@jit``, with or without arguments."""
    return isinstance(node, ast.FunctionDef) and any(
        dotted(d.func if isinstance(d, ast.Call) else d) in ("triton.jit", "jit") for d in node.decorator_list
    )


def first_line(statement: ast.stmt) -> int:
    """Returns the line on which a statement begins, decorators included, as in ``co_firstlineno``."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


# --------------------------------------------------------------------------- names that code reads and binds


def read_names(node: ast.AST) -> set[str]:
    """Returns every name that is read anywhere in a tree."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def stored_names(node: ast.AST) -> set[str]:
    """Returns every plain name that is assigned anywhere in a tree."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def assigned_once(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Returns the values of names that exactly one statement assigns."""
    stores = Counter(
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )
    return {
        node.targets[0].id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and stores[node.targets[0].id] == 1
    }


def binding_counts(tree: ast.AST) -> Counter[str]:
    """Counts the statements and arguments that bind each name, wherever they are; imports aside."""
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                found[name] += 1
            case ast.Name(id=name, ctx=ast.Store()):
                found[name] += 1
    return found


def bound_names(node: ast.AST, *, imports: bool = True) -> set[str]:
    """Returns every name that is bound in any scope inside ``node``, but not the name of ``node`` itself.

    Args:
        node: any syntax tree; wrap a function or class in an ``ast.Module`` to include its own name.
        imports: include the names that import statements bind.
    """
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.arg):
            found.add(inner.arg)
        elif isinstance(inner, ast.Name):
            if not isinstance(inner.ctx, ast.Load):
                found.add(inner.id)
        elif isinstance(inner, ast.alias):
            if imports:
                found.add(inner.asname or inner.name.partition(".")[0])
        elif inner is not node and isinstance(name := getattr(inner, "name", None), str):
            found.add(name)  # a function, a class, an `except ... as`, a pattern
    return found


def free_name(name: str, taken: Collection[str]) -> str:
    """Appends underscores to a name until it is not taken."""
    while name in taken:
        name += "_"
    return name


def snake_case(name: str) -> str:
    """Spells a name in lower case with underscores, as people write it.

    ``LlamaRMSNorm`` becomes ``llama_rms_norm``, ``SwiGLU`` becomes ``swiglu``, ``Conv2dBatchNormReLU`` becomes
    ``conv2d_batch_norm_relu``.
    """
    parts = re.split(r"[\W_]+", name)
    return "_".join(word.lower() for part in parts for word in _WORDS.findall(part)) or "module"


_ACRONYMS = (
    "ALiBi CReLU DyT GEGLU GELU GLU GPT GeGLU LoRA MoE PReLU RReLU ReGLU ReLU RoPE SELU SiLU SwiGLU ViT"
)
"""The field's words that capitals alone would cut in a wrong place."""

_NUMBER = r"(?:\d+D(?![a-z])|\d*)"
_WORDS = re.compile(
    rf"(?:{'|'.join(sorted(_ACRONYMS.split(), key=len, reverse=True))}){_NUMBER}(?![a-z])"
    rf"|[A-Z]+{_NUMBER}(?![a-z])"  # any other acronym, up to the capital that begins the next word
    r"|[A-Z]?[^\WA-Z]*\d+D(?![a-z])"  # Conv2D
    r"|[A-Z]?[^\WA-Z]+"
)


# --------------------------------------------------------------------------- changes


def rename(node: ast.AST, names: Mapping[str, str]) -> None:
    """Renames variables and parameters everywhere in a tree, in place; ``names`` gives the new name by the old."""
    for inner in set(ast.walk(node)):  # a set, because a tree may hold one node twice
        if isinstance(inner, ast.Name):
            inner.id = names.get(inner.id, inner.id)
        elif isinstance(inner, ast.arg):
            inner.arg = names.get(inner.arg, inner.arg)


class Substitute(ast.NodeTransformer):
    """Replaces names that are read by expressions."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        """``values``: the expressions, by the name that each replaces."""
        self.values = values

    def apply(self, node: Node) -> Node:
        """Returns a changed copy of a tree."""
        result: Node = self.visit(copy.deepcopy(node))
        return result

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Called by ``ast.NodeTransformer``."""
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return copy.deepcopy(self.values[node.id])
        return node


class RemovingTransformer(ast.NodeTransformer):
    """A transformer whose visitors may remove statements: a block that loses its last one gets ``pass``."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visits the children of a node."""
        super().generic_visit(node)
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]  # type: ignore[attr-defined]  # it has one, which is empty
        if isinstance(node, ast.Try) and not node.handlers and not node.finalbody:
            node.finalbody = [ast.Pass()]
        return node

"""Finds the numbers with which a kernel module compares sizes, where it may go on in another way on either side.

Standard library only. A number that the text computes from a tensor's values is not seen.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise, product

from pytest_kernelllm.core.program import parse
from pytest_kernelllm.core.syntax import (
    Substitute,
    call_name,
    constant_int,
    is_jitted,
    read_names,
    stored_names,
)

Constants = Mapping[str, list[ast.expr]]

_MOST = 2**31
"""Larger numbers, and those below 1, are no sizes that are tried."""

_MOST_VALUES = 64
"""Of an expression whose names are bound more than once, so many values are tried."""

_BOUNDS = ("max", "min", "tl.maximum", "tl.minimum")


def compared_numbers(source: str) -> tuple[int, ...]:
    """Returns, in order, the integers with which a module compares anything outside its kernels, and a kernel its arguments.

    Bounds count, as in ``min(n, 512)``, and so do quotients, which are 0 below their divisor, and patterns of ``match``. Of what a
    kernel computes from its place in the grid nothing counts: the ends of all tensors are tried anyway.
    """
    tree = parse(source)
    constants = _constants(tree)
    kernels = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and is_jitted(node)]
    in_kernels = {id(node) for kernel in kernels for node in ast.walk(kernel)}
    found = {
        number
        for node in ast.walk(tree)
        if id(node) not in in_kernels
        for number, _ in _comparisons(node, constants)
    }
    for kernel in kernels:
        arguments = {a.arg for a in ast.walk(kernel.args) if isinstance(a, ast.arg)} - stored_names(kernel)
        for node in ast.walk(kernel):
            found |= {
                number for number, other in _comparisons(node, constants) if read_names(other) <= arguments
            }
    return tuple(sorted(number for number in found if 1 <= number < _MOST))


def _constants(tree: ast.Module) -> Constants:
    """Returns the integers to which each name is bound somewhere, whatever else it is bound to."""
    found: defaultdict[str, list[ast.expr]] = defaultdict(list)
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[*targets], value=value):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
                names = [name]
            case ast.NamedExpr(target=ast.Name(name), value=value):
                names = [name]
            case _:
                continue
        if isinstance(value, ast.Call) and call_name(value).endswith("constexpr") and value.args:
            value = value.args[0]
        if (number := constant_int(value)) is not None:
            for name in names:
                found[name].append(ast.Constant(number))
    return found


def _comparisons(node: ast.AST, constants: Constants) -> Iterator[tuple[int, ast.expr]]:
    """Yields the numbers with which a node compares something, and what that is."""
    match node:
        case ast.Compare():
            sides = [node.left, *node.comparators]
            pairs = [*pairwise(sides)]
        case ast.Call() if call_name(node) in _BOUNDS:
            pairs = [(one, other) for one in node.args for other in node.args if one is not other]
        case ast.BinOp(left, ast.FloorDiv() | ast.RShift() as operation, right):
            quotient = isinstance(operation, ast.FloorDiv)
            pairs = [(left, right if quotient else ast.BinOp(ast.Constant(1), ast.LShift(), right))]
        case ast.MatchValue(value):
            pairs = [(ast.Name("_", ast.Load()), value)]
        case _:
            return
    for left, right in pairs:
        for one, other in ((left, right), (right, left)):
            if not isinstance(other, ast.Constant):
                yield from ((number, other) for number in _numbers(one, constants))


def _numbers(node: ast.expr, constants: Constants) -> Iterator[int]:
    """Yields the integers that an expression may be, with names for integers, also as 1e6."""
    if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value.is_integer():
        yield int(node.value)
    names = sorted(read_names(node))
    for values in islice(product(*(constants.get(name, ()) for name in names)), _MOST_VALUES):
        number = constant_int(Substitute(dict(zip(names, values, strict=True))).apply(node))
        if number is not None:
            yield number

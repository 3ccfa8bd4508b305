"""Finds the numbers with which a kernel module compares sizes, where it may go on in another way on either side.

Standard library only. A number that the text computes from a tensor's values is not seen.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise, product

from pytest_kernelllm.core.program import parse
from pytest_kernelllm.core.syntax import (
    Substitute,
    call_name,
    constant_int,
    defaults,
    is_jitted,
    parameters,
    read_names,
    stored_names,
)

Numbers = Mapping[str, list[ast.expr]]
"""The integers that each name may stand for."""

_MOST = 2**31
"""Larger numbers, and those below 1, are no sizes that are tried."""

_MOST_VALUES = 64
"""Of an expression whose names stand for more than one integer, so many values are tried."""

_BOUNDS = ("max", "min", "tl.maximum", "tl.minimum")


def compared_numbers(source: str) -> tuple[int, ...]:
    """Returns, in order, the integers with which a module compares anything outside its kernels, and a kernel its arguments.

    Bounds count, as in ``min(n, 512)``, and so do divisors, below which a quotient is 0, keys of a ``dict``, and patterns of
    ``match``. Of what a kernel computes from its place in the grid nothing counts: the ends of all tensors are tried anyway.
    """
    tree = parse(source)
    numbers = _numbers_by_name(tree)
    kernels = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and is_jitted(node)]
    inside = {id(node) for kernel in kernels for statement in kernel.body for node in ast.walk(statement)}
    found = {
        number
        for node in ast.walk(tree)
        if id(node) not in inside
        for one, _ in _compared(node)
        for number in _values(one, numbers)
    }
    for kernel in kernels:
        arguments = {each.arg for each in parameters(kernel.args)} - stored_names(kernel)
        for node in (node for statement in kernel.body for node in ast.walk(statement)):
            for one, other in _compared(node):
                if read_names(other) <= arguments | numbers.keys():
                    found.update(_values(one, numbers))
    return tuple(sorted(number for number in found if 1 <= number < _MOST))


# --------------------------------------------------------------------------- what names stand for


def _numbers_by_name(tree: ast.Module) -> Numbers:
    """Returns the integers to which each name is bound somewhere, whatever else it is bound to."""
    functions = {node.name: node.args for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    found: defaultdict[str, list[ast.expr]] = defaultdict(list)
    for node in ast.walk(tree):
        for name, value in _bindings(node, functions):
            if isinstance(value, ast.Call) and call_name(value).endswith("constexpr") and value.args:
                value = value.args[0]
            if (number := constant_int(value)) is not None:
                found[name].append(ast.Constant(number))
    return found


def _bindings(node: ast.AST, functions: Mapping[str, ast.arguments]) -> Iterator[tuple[str, ast.expr]]:
    """Yields what a node binds to names: by assignment, as a default, or as an argument."""
    match node:
        case ast.Assign(targets=[*targets], value=value):
            for target in targets:
                yield from _unpacked(target, value)
        case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
            yield name, value
        case ast.NamedExpr(target=ast.Name(name), value=value):
            yield name, value
        case ast.FunctionDef(args=arguments) | ast.Lambda(args=arguments):
            yield from defaults(arguments).items()
        case ast.Call():
            yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg is not None)
            if called := functions.get(call_name(node)):
                yield from zip((each.arg for each in parameters(called)), node.args, strict=False)


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for part, element in zip(target.elts, value.elts, strict=False):
            yield from _unpacked(part, element)


# --------------------------------------------------------------------------- what is compared


def _compared(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yields what a node compares, each with what it is compared with, in both orders."""
    pairs: Sequence[tuple[ast.expr, ast.expr]] = ()
    match node:
        case ast.Compare():
            pairs = [*pairwise([node.left, *node.comparators])]
        case ast.Call() if call_name(node) in _BOUNDS:
            pairs = [(one, other) for one in node.args for other in node.args if one is not other]
        case ast.BinOp(left, ast.FloorDiv() | ast.Mod(), right):
            pairs = [(left, right)]
        case ast.BinOp(left, ast.RShift(), right):
            pairs = [(left, ast.BinOp(ast.Constant(1), ast.LShift(), right))]
        case ast.MatchValue(value):
            pairs = [(ast.Name("_", ast.Load()), value)]
        case ast.Dict():
            pairs = [(ast.Name("_", ast.Load()), key) for key in node.keys if key is not None]
    for left, right in pairs:
        for one, other in ((left, right), (right, left)):
            if not isinstance(other, ast.Constant):
                yield from ((element, other) for element in _elements(one))


def _elements(node: ast.expr) -> Iterator[ast.expr]:
    """Yields an expression, or the elements of a tuple, list or set, as in ``n in (64, 128)``."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from _elements(element)
    else:
        yield node


def _values(node: ast.expr, numbers: Numbers) -> Iterator[int]:
    """Yields the integers that an expression may be, with names for integers, also as 1e6."""
    if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value.is_integer():
        yield int(node.value)
    if isinstance(node, ast.Attribute):  # of a class
        node = ast.Name(node.attr, ast.Load())
    names = sorted(read_names(node))
    for values in islice(product(*(numbers.get(name, ()) for name in names)), _MOST_VALUES):
        number = constant_int(Substitute(dict(zip(names, values, strict=True))).apply(node))
        if number is not None:
            yield number

"""Finds the numbers with which a kernel module compares sizes, where it may go on in another way on either side.

Standard library only. It finds rather too many: each further number costs only a few calls, at sizes next to it. What the text makes of
a tensor's values, or reads from attributes of the target, is not seen.
"""

from __future__ import annotations

import ast
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, product

from kernelllm_judge.core.program import parse
from kernelllm_judge.core.syntax import (
    assigned_once,
    call_name,
    defaults,
    is_jitted,
    parameters,
    read_names,
    stored_names,
)

Numbers = Mapping[str, set[float]]
"""The numbers that each name may stand for, or that are in a container of that name."""

_MOST = 2**31
"""Larger numbers, and those below 1, are no sizes that are tried."""

_MOST_VALUES = 64
"""Values of one expression, or one name, that are followed."""

_MOST_NODES = 200
"""Nodes of the largest expression that is evaluated."""

_ROUNDS = 3
"""How often names are evaluated, so that ``FEW = 4 * ROWS`` is known after ``ROWS = 2 * 32``."""

_COMPARING = frozenset(
    [
        *("max", "min", "maximum", "minimum", "sym_max", "sym_min", "divmod"),
        *("bisect", "bisect_left", "bisect_right", "lt", "le", "gt", "ge", "eq", "ne"),
    ]
)
"""Functions that compare their arguments, whatever module they are from."""

_BYTES = frozenset(["element_size", "itemsize"])

_OPERATIONS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: lambda a, b: a * 2**b,
    ast.RShift: lambda a, b: a // 2**b,
}


def compared_numbers(source: str) -> tuple[int, ...]:
    """Returns, in order, the integers with which a module compares anything outside its kernels, and a kernel its arguments.

    Bounds count, as in ``min(n, 512)``, and so do divisors, below which a quotient is 0, keys of a ``dict``, and patterns of
    ``match``; of ``4 * n <= 2000`` the 500 as well. Of what a kernel computes from its place in the grid nothing counts: the ends
    of all tensors are tried anyway.
    """
    tree = parse(source)
    kernels = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and is_jitted(node)]
    bodies = [[node for statement in kernel.body for node in ast.walk(statement)] for kernel in kernels]
    inside = {id(node) for body in bodies for node in body}
    outside = [node for node in ast.walk(tree) if id(node) not in inside]
    functions = {node.name: node.args for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    numbers = _numbers_by_name(outside, functions, {})
    found = set[float]().union(*(_compared(node, numbers) for node in outside))
    for kernel, body in zip(kernels, bodies, strict=True):
        given = _given(kernel) | numbers.keys() | {"tl"}
        known = [node for node in body if read_names(node) <= given]
        own = _numbers_by_name(known, functions, numbers)
        found |= set[float]().union(*(_compared(node, own) for node in known))
    return tuple(sorted({math.floor(abs(number)) for number in found if 1 <= abs(number) < _MOST}))


def _given(kernel: ast.FunctionDef) -> set[str]:
    """Returns the names of a kernel that are the same in all of its programs: arguments, and what is computed of them alone."""
    known = {each.arg for each in parameters(kernel.args)} - stored_names(kernel)
    for name, value in assigned_once(kernel).items():
        calls = any(isinstance(node, ast.Call) for node in ast.walk(value))
        if not calls and read_names(value) <= known:
            known.add(name)
    return known


# --------------------------------------------------------------------------- what names stand for


def _numbers_by_name(
    nodes: Iterable[ast.AST], functions: Mapping[str, ast.arguments], known: Numbers
) -> Numbers:
    """Returns the numbers to which some nodes bind each name, whatever else it is bound to; those already ``known`` as well."""
    bindings = [binding for node in nodes for binding in _bindings(node, functions)]
    found: defaultdict[str, set[float]] = defaultdict(
        set, {name: {*values} for name, values in known.items()}
    )
    for _ in range(_ROUNDS):
        for name, value in bindings:
            if len(found[name]) < _MOST_VALUES:
                found[name] |= _values(value, found)
    return {name: values for name, values in found.items() if values}


def _bindings(node: ast.AST, functions: Mapping[str, ast.arguments]) -> Iterator[tuple[str, ast.expr]]:
    """Yields what a node binds to names: by assignment, in a loop, as a default, or as an argument."""
    match node:
        case ast.Assign(targets=[*targets], value=value):
            for target in targets:
                yield from _unpacked(target, value)
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
        ):
            yield from _unpacked(target, value)
        case ast.AugAssign(target=ast.Name(name), op=operation, value=value):
            yield name, ast.BinOp(ast.Name(name, ast.Load()), operation, value)
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            yield from _unpacked(target, value)
        case ast.FunctionDef(args=arguments) | ast.Lambda(args=arguments):
            yield from defaults(arguments).items()
        case ast.Call():
            yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg is not None)
            if called := functions.get(call_name(node)):
                yield from zip((each.arg for each in parameters(called)), node.args, strict=False)


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yields each name of a target with its part of a value, or with all of it where its parts are not apparent."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        parts: list[ast.expr] = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        alike = len(parts) == len(target.elts)
        for number, part in enumerate(target.elts):
            yield from _unpacked(part, parts[number] if alike else value)


# --------------------------------------------------------------------------- what is compared


def _compared(node: ast.AST, numbers: Numbers) -> set[float]:
    """Returns the numbers with which a node compares something; none for a node that compares nothing."""
    match node:
        case ast.Compare():
            sides = (node.left, *node.comparators)
            values = set[float]().union(*(_values(side, numbers) for side in sides))
            open_ = (side for side in sides if read_names(side) - numbers.keys())
            factors = {factor for side in open_ for factor in _factors(side) if 1 < factor < _MOST}
            pairs = islice(product(values, factors), _MOST_VALUES**2)
            return values.union(*({value * factor, value // factor} for value, factor in pairs))
        case ast.Call() if call_name(node).rpartition(".")[2] in _COMPARING:
            return set[float]().union(*(_values(argument, numbers) for argument in node.args))
        case ast.BinOp(op=ast.FloorDiv() | ast.Mod(), right=right):
            return _values(right, numbers)
        case ast.BinOp(op=ast.RShift(), right=right):
            return {2.0**value for value in _values(right, numbers) if 0 <= value < 31}
        case ast.MatchValue(value):
            return _values(value, numbers)
        case ast.Dict():
            return set[float]().union(*(_values(key, numbers) for key in node.keys if key is not None))
    return set()


def _factors(node: ast.AST) -> Iterator[float]:
    """Yields by what sizes may be multiplied or divided before they are compared."""
    for each in ast.walk(node):
        match each:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                yield value
            case ast.BinOp(op=ast.RShift() | ast.LShift(), right=ast.Constant(value=int() as shift)) if (
                0 < shift < 31
            ):
                yield 2.0**shift
            case ast.Attribute(attr=name) if name in _BYTES:
                yield from (2.0, 4.0)


def _values(node: ast.expr, numbers: Numbers) -> set[float]:
    """Returns the numbers that an expression may be, or that are in it if it is a container or calls a function."""
    if sum(1 for _ in islice(ast.walk(node), _MOST_NODES + 1)) > _MOST_NODES and not isinstance(
        node, ast.Tuple | ast.List | ast.Set | ast.Dict
    ):
        return set()
    found: Iterable[float] = ()
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            found = [number]
        case ast.Name(name):
            found = numbers.get(name, ())
        case ast.Attribute(value=value, attr=name):
            found = numbers.get(name, ()) or _values(value, numbers)
        case ast.Subscript(value=value) | ast.Starred(value=value):
            found = _values(value, numbers)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = (-value for value in _values(operand, numbers))
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATIONS:
            both = product(_values(left, numbers), _values(right, numbers))
            found = (result for pair in both if (result := _result(operation, *pair)) is not None)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            found = (value for part in parts for value in _values(part, numbers))
        case ast.Dict(keys=keys, values=values):
            entries = [part for part in (*keys, *values) if part is not None]
            found = (value for part in entries for value in _values(part, numbers))
        case ast.Call(func=function, args=arguments):
            called = [function.value] if isinstance(function, ast.Attribute) else []
            found = (value for part in (*arguments, *called) for value in _values(part, numbers))
    return {value for value in islice(found, _MOST_VALUES) if abs(value) < _MOST}


def _result(operation: ast.operator, left: float, right: float) -> float | None:
    if isinstance(operation, ast.Pow | ast.LShift | ast.RShift) and not 0 <= right <= 64:
        return None
    try:
        value = _OPERATIONS[type(operation)](left, right)
    except ArithmeticError:
        return None
    return value if isinstance(value, int | float) else None

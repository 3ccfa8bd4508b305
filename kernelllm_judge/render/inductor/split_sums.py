"""Simplifies kernels of sums that Inductor splits among programs where sizes are free.

Inductor takes each offset modulo the number of elements, although the load's mask excludes offsets past the end, and
recomputes the length of a part in every program, although it is an argument. Without the modulo, and with a length that
Triton knows to be divisible by 16, a thread can load several neighbours at once.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence

from kernelllm_judge.core.syntax import Substitute, assigned_once, call_name, read_names
from kernelllm_judge.render.inductor.program import Launch, Program
from kernelllm_judge.render.inductor.wrapper import runtime_parameters

LENGTH = "r0_numel"
"""The parameter that holds the length of a part."""

MOST_NODES = 200
"""Nodes of the largest expression that is compared with another one."""

Values = Mapping[str, ast.expr]


def arguments_of(program: Program, kernel: str) -> list[Values]:
    """Returns the arguments of each launch of a kernel, by parameter."""
    names = [a.arg for a in runtime_parameters(program.kernels[kernel].function)]
    launches = [step for step in program.steps if isinstance(step, Launch) and step.kernel == kernel]
    return [dict(zip(names, launch.arguments, strict=True)) for launch in launches]


def simplified(function: ast.FunctionDef, launches: Sequence[Values]) -> ast.FunctionDef:
    """Returns a copy of a kernel without needless modulos, in which the length of a part is the argument.

    Args:
        function: the kernel.
        launches: the arguments of each launch, by parameter.
    """
    result: ast.FunctionDef = _Loads(assigned_once(function)).visit(copy.deepcopy(function))
    lengths = {_length(arguments) for arguments in launches}
    if len(lengths) == 1 and (length := lengths.pop()):
        result = _Length(length).visit(result)
    return ast.fix_missing_locations(result)


def _length(arguments: Values) -> str:
    """Returns the dump of the length in terms of the other parameters; empty if it is a number, or one of them."""
    value = arguments.get(LENGTH)
    names = {a.id: ast.Name(name, ast.Load()) for name, a in arguments.items() if isinstance(a, ast.Name)}
    if not isinstance(value, ast.BinOp) or not read_names(value) <= names.keys():
        return ""
    return ast.dump(Substitute(names).apply(value))


class _Length(ast.NodeTransformer):
    """Replaces one expression by ``LENGTH``."""

    def __init__(self, dump: str) -> None:
        self._dump = dump

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if ast.dump(node) == self._dump:
            return ast.Name(LENGTH, ast.Load())
        return self.generic_visit(node)


class _Loads(ast.NodeTransformer):
    """Drops ``% size`` from an offset in loads whose mask requires that the offset is less than the size."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if call_name(node) != "tl.load" or len(node.args) < 2:
            return self.generic_visit(node)
        if not any(isinstance(each, ast.Mod) for each in ast.walk(node.args[0])):
            return node
        bounds = {
            (_resolved(condition.left, self._values), _resolved(condition.comparators[0], self._values))
            for condition in _conditions(node.args[1], self._values)
            if isinstance(condition, ast.Compare) and isinstance(condition.ops[0], ast.Lt)
        }
        node.args[0] = _Modulos(self._values, bounds).visit(node.args[0])
        return node


class _Modulos(ast.NodeTransformer):
    """Replaces ``offset % size`` by ``offset`` where these two are among ``bounds``."""

    def __init__(self, values: Values, bounds: set[tuple[str, str]]) -> None:
        self._values, self._bounds = values, bounds

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mod):
            both = _resolved(node.left, self._values), _resolved(node.right, self._values)
            return node.left if both in self._bounds else node
        return node


class _WithoutCasts(ast.NodeTransformer):
    """Drops casts to int32: Inductor compares offsets in 32 bits where none of them needs more."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="to"), args=[kind]):
                pass
            case ast.Call(func=ast.Attribute(attr="cast"), args=[value, kind]):
                pass
            case _:
                return node
        return value if ast.unparse(kind) == "tl.int32" else node


def _resolved(node: ast.expr, values: Values) -> str:
    """Returns the dump of an expression in which names are replaced by their values, as long as it stays small.

    It need not end otherwise: a value that is used twice at each step doubles, and a text may define names in circles.
    """
    return ast.dump(_WithoutCasts().visit(copy.deepcopy(in_terms_of_others(node, values))))


def in_terms_of_others(node: ast.expr, values: Values) -> ast.expr:
    """Returns an expression in which names are replaced by their values, until it has more than ``MOST_NODES`` nodes."""
    for _ in values:
        if not read_names(node) & values.keys() or sum(1 for _ in ast.walk(node)) > MOST_NODES:
            break
        node = Substitute(values).apply(node)
    return node


def _conditions(mask: ast.expr, values: Values) -> Iterator[ast.expr]:
    """Yields the conditions that all hold where a mask does."""
    waiting, seen = [mask], set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.BitAnd):
            waiting += [each.left, each.right]
        elif isinstance(each, ast.Name) and each.id in values and each.id not in seen:
            seen.add(each.id)
            waiting.append(values[each.id])
        else:
            yield each

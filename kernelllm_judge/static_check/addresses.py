"""Refuses addresses that a kernel module makes up: every pointer comes from a tensor's argument.

Triton makes a pointer of a number by a cast to a pointer's type, which a kernel can only take from one of its
pointers (``x_ptr.dtype``), where a parameter is annotated so (``x: "*fp32"``), and of an object with ``data_ptr``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from kernelllm_judge.static_check.scopes import UNKNOWN, LexicalScope, ScopedNode, paths

_ACCESSES = re.compile(
    r"triton\.language\.(load|store|atomic_\w+|make_block_ptr|make_tensor_descriptor|advance)"
)
_NAMED_TUPLES = ("collections.namedtuple", "typing.NamedTuple")
_WORD = re.compile(r"\bdata_ptr\b")


def made_up_addresses(nodes: Sequence[ScopedNode]) -> Iterator[tuple[int, str]]:
    """Yields the line and the reason of everything by which a number could become an address."""
    pointers = _Pointers(nodes)
    # An attribute of the type, such as its width, is not an address.
    elements = {
        id(node.value)
        for node, _ in nodes
        if isinstance(node, ast.Attribute) and (node.attr == "element_ty" or node.attr.startswith("is_"))
    }
    for node, scope in nodes:
        match node:
            case ast.Attribute(attr="dtype", value=value) if id(node) not in elements and pointers.holds(
                value
            ):
                yield (
                    node.lineno,
                    f"takes the type of the pointer `{ast.unparse(value)}`, by which a number becomes an address; "
                    "use `.dtype.element_ty`",
                )
            case ast.Attribute(attr="type") if id(node) not in elements and pointers.in_kernel(node):
                yield node.lineno, "takes a `.type`, by which a number may become an address"
            case ast.arg(annotation=ast.expr() as annotation) if _may_be_a_pointers(annotation, scope):
                yield node.lineno, f"annotates `{node.arg}`, by which a number may become an address"
            case ast.FunctionDef(name="data_ptr") | ast.Name(id="data_ptr", ctx=ast.Store()):
                yield node.lineno, "defines `data_ptr`, by which Triton takes an object for a pointer"
            case ast.Call(func=func, args=args, keywords=keywords):
                if "triton.language.tensor" in paths(func, scope):
                    yield node.lineno, "makes a tl.tensor of a handle"
                if paths(func, scope) & {*_NAMED_TUPLES} and not all(
                    _is_plain(each)
                    for each in (*args[1:], *(each.value for each in keywords if each.arg != "defaults"))
                ):
                    yield node.lineno, "names the fields of a tuple by other things than literals"
            case ast.Attribute(attr="data_ptr", ctx=ast.Store()):
                yield node.lineno, "defines `data_ptr`, by which Triton takes an object for a pointer"


def _is_plain(fields: ast.expr) -> bool:
    """Whether the fields of a named tuple are literals, and none is ``data_ptr``."""
    if isinstance(fields, ast.List | ast.Tuple):
        return all(
            _is_plain(each.elts[0] if isinstance(each, ast.Tuple) and each.elts else each)
            for each in fields.elts
        )
    return isinstance(fields, ast.Constant) and not _WORD.search(str(fields.value))


def _may_be_a_pointers(annotation: ast.expr, scope: LexicalScope) -> bool:
    """Whether an annotation is a text about pointers, or something that could be one."""
    for node in ast.walk(annotation):
        match node:
            case ast.Constant(value=str(text)):
                if "*" in text:
                    return True
            case ast.Name(id=name):
                if scope.holders(name) and UNKNOWN in paths(node, scope):
                    return True
            case ast.BinOp(op=ast.BitOr()) | ast.Attribute() | ast.Subscript() | ast.Tuple() | ast.List():
                pass
            case ast.Constant() | ast.expr_context() | ast.operator():
                pass
            case _:
                return True
    return False


class _Pointers:
    """The names of a kernel module's functions that hold pointers: what is read or written through, and its origin."""

    def __init__(self, nodes: Sequence[ScopedNode]) -> None:
        self._names: set[tuple[int, str]] = set()
        self._functions = {node.name: node for node, _ in nodes if isinstance(node, ast.FunctionDef)}
        self._holder = {
            id(inner): function for function in self._functions.values() for inner in ast.walk(function)
        }
        links: list[tuple[tuple[int, str], tuple[int, str]]] = []
        for node, scope in nodes:
            function = self._holder.get(id(node))
            if function is None:
                continue
            match node:
                case ast.Call(func=func, args=[first, *_]) if any(
                    _ACCESSES.match(p) for p in paths(func, scope)
                ):
                    self._names |= {(id(function), name) for name in _base(first)}
                case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if (
                    name in self._functions
                ):
                    callee = self._functions[name]
                    passed = [*zip((each.arg for each in callee.args.args), args, strict=False)]
                    passed += [(each.arg, each.value) for each in keywords if each.arg]
                    links += [
                        ((id(callee), parameter), (id(function), own))
                        for parameter, value in passed
                        for own in _base(value)
                    ]
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    links += [((id(function), name), (id(function), own)) for own in _base(value)]
                case ast.AugAssign(target=ast.Name(id=name), value=value):
                    links += [((id(function), name), (id(function), own)) for own in _base(value)]
        called = {name for node, _ in nodes if isinstance(node, ast.Call) for name in _base(node.func)}
        self._kernels = [
            node
            for node, scope in nodes
            if isinstance(node, ast.FunctionDef)
            and any("triton.jit" in _called(d, scope) for d in node.decorator_list)
        ]
        self._parameters = {
            (id(kernel), each.arg)
            for kernel in self._kernels
            if kernel.name not in called
            for each in kernel.args.args
            if each.annotation is None
        }
        """Parameters of launched kernels: pointers and numbers."""
        before = -1
        while before != len(self._names):
            before = len(self._names)
            for one, other in links:
                if one in self._names or other in self._names:
                    self._names |= {one, other}

    def in_kernel(self, node: ast.expr) -> bool:
        """Whether an expression is part of a kernel."""
        return self._holder.get(id(node)) in self._kernels

    def holds(self, node: ast.expr) -> bool:
        """Whether an expression is, or is computed from, a pointer."""
        function = self._holder.get(id(node))
        found = {(id(function), name) for name in _base(node)}
        return bool(found & self._names) or (isinstance(node, ast.Name) and bool(found & self._parameters))


def _called(decorator: ast.expr, scope: LexicalScope) -> frozenset[str]:
    return paths(decorator.func if isinstance(decorator, ast.Call) else decorator, scope)


def _base(node: ast.expr) -> list[str]:
    """The names that are added up to an address; one of them is the pointer."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return _base(node.left) + _base(node.right)
    return [node.id] if isinstance(node, ast.Name) else []

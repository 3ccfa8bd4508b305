"""Finds out whether a kernel module computes its offsets in 64 bits, by its source. Standard library only.

Triton's program ids, ranges and integer arguments below 2**31 have 32 bits, and so has a product of two of them, however it
is used later. The check is conservative: what it does not understand counts as 32 bits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelllm_judge.core.program import parse

WITHIN_32_BITS = 2**31 - 2**24
"""Most elements of a tensor that 32-bit offsets reach. The last programs of a grid compute offsets beyond a tensor's end."""

_ACCESSES = {"load": (0, 1), "store": (0, 2)}
"""Functions that access memory, with the positions of the pointer and the mask among their arguments."""
_PASSING_ON = frozenset(
    ["cdiv", "expand_dims", "broadcast_to", "max_contiguous", "maximum", "minimum", "multiple_of", "where"]
)
"""Functions whose result has 64 bits if an argument has."""
_OTHER_ACCESSES = ("advance", "async", "atomic", "descriptor", "experimental", "load", "make_", "store")
"""How the names of other functions begin that get offsets among their arguments."""
_BUILTINS = frozenset(["float", "int", "len", "max", "min", "range"])
_ARITHMETIC = frozenset(["cumprod", "dot", "fma", "inline_asm_elementwise", "mul", "reduce", "umulhi"])
"""Functions that may multiply."""
_PRODUCTS = ast.Mult | ast.LShift | ast.Pow


def offsets_have_64_bits(source: str) -> bool:
    """Returns whether every offset that the kernels of a module add to a pointer is computed in 64 bits."""
    tree = parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    kernels = [node for node in functions if any("jit" in ast.unparse(each) for each in node.decorator_list)]
    decorators = {id(each) for node in kernels for outer in node.decorator_list for each in ast.walk(outer)}
    for node in ast.walk(tree):
        other_name = isinstance(node, ast.alias) and node.name == "jit"
        if other_name or (
            isinstance(node, ast.Attribute) and node.attr == "jit" and id(node) not in decorators
        ):
            return False  # there may be kernels that are not seen here
    harmless = _without_access(tree, functions)
    return all(_Kernel(node, harmless).is_wide() for node in kernels)


def _without_access(tree: ast.Module, functions: list[ast.FunctionDef]) -> frozenset[str]:
    """Returns the names without a module before them that certainly stand for functions that access no memory."""
    bound = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    bound += [function.name for function in functions]
    found = {each.name for each in functions if not any(map(_may_access, ast.walk(each)))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound += [alias.asname or alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("triton.language"):
            found |= {a.asname or a.name for a in node.names if not a.name.startswith(_OTHER_ACCESSES)}
    return frozenset(name for name in found if bound.count(name) == 1) | (_BUILTINS - set(bound))


def _may_access(node: ast.AST) -> bool:
    """Whether a node is a call that may access memory."""
    if not isinstance(node, ast.Call):
        return False
    bare = isinstance(node.func, ast.Name) and node.func.id not in _BUILTINS
    return bare or _name(node.func).startswith(_OTHER_ACCESSES)


@dataclass
class _Kernel:
    """One Triton function."""

    function: ast.FunctionDef
    harmless: frozenset[str]
    """Names of functions that access no memory. Every other one without a module before it may get offsets."""
    values: dict[str, list[ast.expr]] = field(default_factory=dict)
    """All values of each local name."""
    loops: set[str] = field(default_factory=set)
    """Names that grow from round to round of a loop."""
    wide: set[str] = field(default_factory=set)
    """Names whose values all have 64 bits."""
    constants: set[str] = field(default_factory=set)
    """Parameters that are known when the kernel is compiled."""

    def is_wide(self) -> bool:
        """Whether no product of 32-bit numbers is part of an offset."""
        arguments = self.function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self.constants = {a.arg for a in every if a.annotation and "constexpr" in ast.unparse(a.annotation)}
        for node in ast.walk(self.function):
            self._bind(node)
        for name in {a.arg for a in every} & set(self.values):
            self.values[name].append(ast.Constant(None))  # what the caller gives
        self.wide = set(self.values)
        while narrow := {n for n in self.wide if not all(map(self._has_64_bits, self.values[n]))}:
            self.wide -= narrow
        return not any(self._narrow_arithmetic(each) for each in self._offsets())

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for name in (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)):
                    alone = isinstance(targets[0], ast.Name)
                    self.values.setdefault(name, []).append(
                        value if alone else ast.Tuple([value], ast.Load())
                    )
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                self.values.setdefault(name, []).append(value)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                self.values.setdefault(name, []).append(ast.BinOp(target, op, value))
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as bounds):
                self.loops.add(name)
                self.values.setdefault(name, []).append(bounds)
        if isinstance(node, ast.For | ast.While):
            for inner in (each for part in node.body for each in ast.walk(part)):
                match inner:
                    case (
                        ast.AugAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)])
                    ) if isinstance(inner, ast.AugAssign) or name in _names_in(inner.value):
                        self.loops.add(name)

    def _offsets(self) -> Iterator[ast.expr]:
        """Yields the expressions from which pointers and masks are computed, directly or through names."""
        work: list[ast.expr] = []
        for node in ast.walk(self.function):
            if isinstance(node, ast.Call):
                called = _name(node.func)
                if called in _ACCESSES:
                    work += [node.args[i] for i in _ACCESSES[called] if i < len(node.args)]
                    work += [k.value for k in node.keywords if k.arg in ("pointer", "mask")]
                elif called.startswith(_OTHER_ACCESSES) or (
                    isinstance(node.func, ast.Name) and called not in self.harmless
                ):
                    work += [*node.args, *(keyword.value for keyword in node.keywords)]
        seen: set[str] = set()
        while work:
            expression = work.pop()
            yield expression
            for name in _names_in(expression) - seen:
                seen.add(name)
                work += self.values.get(name, [])

    def _narrow_arithmetic(self, expression: ast.expr) -> bool:
        """Whether an expression has a product, or a sum with a loop's counter, of 32-bit numbers, or makes them so."""
        for node in ast.walk(expression):
            match node:
                case ast.BinOp(left=left, op=op, right=right):
                    sides = (left, right)
                    if any(map(self._has_64_bits, sides)) or all(map(self._is_constant, sides)):
                        continue
                    counted = any(isinstance(each, ast.Name) and each.id in self.loops for each in sides)
                    if isinstance(op, _PRODUCTS) or (counted and isinstance(op, ast.Add | ast.Sub)):
                        return True
                case ast.Call(func=func) if _name(func) in _ARITHMETIC:
                    return True
                case ast.Call(func=func) if _name(func) in ("to", "cast") and not self._has_64_bits(node):
                    return True
        return False

    def _has_64_bits(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.wide
            case ast.BinOp(left=left, right=right):
                return self._has_64_bits(left) or self._has_64_bits(right)
            case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner):
                return self._has_64_bits(inner)
            case ast.IfExp(body=body, orelse=orelse):
                return self._has_64_bits(body) and self._has_64_bits(orelse)
            case ast.Call(func=func, args=args, keywords=keywords):
                given = [*args, *(keyword.value for keyword in keywords)]
                called = _name(func)
                if called in ("to", "cast", "full", "zeros"):
                    return any(_name(each) == "int64" for each in given)
                return called in (*_PASSING_ON, "range") and any(map(self._has_64_bits, given))
        return False

    def _is_constant(self, node: ast.expr) -> bool:
        """Whether an expression is known when the kernel is compiled; its value then has as many bits as it needs."""
        return _names_in(node) <= self.constants and not any(isinstance(n, ast.Call) for n in ast.walk(node))


def _names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _name(node: ast.expr) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""

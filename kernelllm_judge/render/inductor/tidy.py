"""Makes a lowered kernel readable without changing what it computes.

Dead assignments and aliases are removed, and constants and temporaries that are used once move to their use.
Every rule works on one block of statements and does nothing if it is not sure.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from kernelllm_judge.core.syntax import (
    Substitute,
    binding_counts,
    call_name,
    expression,
    read_names,
    stored_names,
)
from kernelllm_judge.render.inductor.casts import base_pointer, drop_casts
from kernelllm_judge.render.inductor.constants import InlineConstants, full_number

WIDTH = 96
"""The largest width of a statement after a temporary is moved into it."""

_EFFECTS = ("tl.store", "tl.atomic", "tl.debug_barrier")
_OWN_LINE = (
    "tl.load",
    "tl.sum",
    "tl.max",
    "tl.min",
    "tl.cumsum",
    "tl.reduce",
    "tl.associative_scan",
    "tl.program_id",
)
_OWN_LINE_HELPERS = (
    "nan_",
    "max_with",
    "min_with",
    "any_true",
    "product",
    "welford",
    "online_softmax",
    "select_one",
    "sort_with_index",
)


def tidy(function: ast.FunctionDef, types: Mapping[str, str]) -> ast.FunctionDef:
    """Returns a readable copy of a lowered kernel; ``types`` are the known Triton types of its parameters."""
    function = copy.deepcopy(function)
    function = _Slices().visit(function)
    function.body = _drop_dead(function.body)
    _forward_names(function.body)
    floats = {name for name, kind in types.items() if kind == "*fp32"}
    # Names that are neither parameters nor assigned become float parameters later.
    scalars = read_names(function) - stored_names(function) - {a.arg for a in function.args.args}
    drop_casts(function.body, floats, scalars)
    _forward_names(function.body)
    function.body = _drop_dead(function.body)
    _move_once_used(function)
    function.body = _drop_dead(function.body)
    # Last, because values were moved into conversions before.
    _Sizes({a.arg for a in function.args.args if "ptr" not in a.arg}).visit(function)
    return ast.fix_missing_locations(function)


class _Slices(ast.NodeTransformer):
    """Replaces ``x[:]`` by ``x``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        whole = (
            isinstance(node.slice, ast.Slice)
            and node.slice.lower is node.slice.upper is node.slice.step is None
        )
        return node.value if whole else node


def drop_stores(function: ast.FunctionDef, pointers: set[str]) -> ast.FunctionDef:
    """Copies a kernel without some pointer parameters and the stores to them."""

    class Drop(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
            if isinstance(node.value, ast.Call) and call_name(node.value) == "tl.store":
                return None if base_pointer(node.value) in pointers else node
            return node

    result = Drop().visit(copy.deepcopy(function))
    assert isinstance(result, ast.FunctionDef)
    result.args.args = [a for a in result.args.args if a.arg not in pointers]
    return ast.fix_missing_locations(result)


def stores(function: ast.FunctionDef) -> set[str]:
    """Returns the pointer parameters to which a kernel stores."""
    return _accessed(function, ("tl.store", "tl.atomic"))


def loads(function: ast.FunctionDef) -> set[str]:
    """Returns the pointer parameters from which a kernel loads, atomics included."""
    return _accessed(function, ("tl.load", "tl.atomic"))


def _accessed(function: ast.FunctionDef, operations: tuple[str, ...]) -> set[str]:
    calls = (n for n in ast.walk(function) if isinstance(n, ast.Call))
    return {base_pointer(c) for c in calls if c.args and call_name(c).startswith(operations)}


class _Sizes(ast.NodeTransformer):
    """Replaces ``n.to(...)`` of sizes by ``tl.cast(n, ...)``, as a size of 1 is a constant without methods.

    Nor can such a constant be broadcast, so a size is a tensor before.
    """

    def __init__(self, sizes: Collection[str]) -> None:
        self.sizes = sizes

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if call_name(node) == "tl.broadcast_to" and self._is_size(node.args[0]):
            node.args[0] = ast.Call(expression("tl.cast"), [node.args[0], expression("tl.int64")], [])
        elif (
            isinstance(node.func, ast.Attribute) and node.func.attr == "to" and self._is_size(node.func.value)
        ):
            return ast.Call(expression("tl.cast"), [node.func.value, *node.args], node.keywords)
        return node

    def _is_size(self, node: ast.expr) -> bool:
        names = read_names(node)
        return bool(names) and names <= set(self.sizes)


# --------------------------------------------------------------------------- dead code


def _drop_dead(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Removes assignments that no statement with an effect needs."""
    live: set[str] = set()
    while True:
        before = len(live)
        for statement in reversed(body):  # most values are used after they are made
            _grow(statement, live)
        if len(live) == before:
            break
    return _keep(body, live)


def _grow(statement: ast.stmt, live: set[str]) -> None:
    """Adds the names that a statement needs to ``live`` if the statement is needed itself."""
    if isinstance(statement, ast.For | ast.If):
        inner: set[str] = set()
        for child in reversed([*statement.body, *statement.orelse]):
            before = set(live)
            _grow(child, live)
            inner |= live - before
            if _has_effect(child) or stored_names(child) & live:
                inner.add("")
        if inner:
            live |= read_names(statement.iter if isinstance(statement, ast.For) else statement.test)
    elif _has_effect(statement) or stored_names(statement) & live:
        live |= read_names(statement)


def _has_effect(node: ast.AST) -> bool:
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call))
    return isinstance(node, ast.Return) or any(call_name(c).startswith(_EFFECTS) for c in calls)


def _keep(body: Sequence[ast.stmt], live: set[str]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.For | ast.If):
            statement.body = _keep(statement.body, live)
            statement.orelse = _keep(statement.orelse, live)
            if statement.body:
                kept.append(statement)
        elif _has_effect(statement) or stored_names(statement) & live:
            kept.append(statement)
    return kept


# --------------------------------------------------------------------------- names and constants


def _forward_names(body: Sequence[ast.stmt]) -> None:
    """Replaces ``a`` by ``b`` after ``a = b``, and by 0.5 after ``a = tl.full([1], 0.5, tl.float32)`` if equivalent."""
    aliases: dict[str, ast.expr] = {}
    constants: dict[str, ast.expr] = {}
    for statement in body:
        written = stored_names(statement)
        if isinstance(statement, ast.For | ast.If):  # may be assigned more than once, so it is no alias
            for name in written:
                _forget(aliases, constants, name)
        Substitute(aliases).visit(statement)
        InlineConstants(constants).visit(statement)
        if isinstance(statement, ast.For | ast.If):
            _forward_names(statement.body)
            _forward_names(statement.orelse)
            continue
        for name in written:
            _forget(aliases, constants, name)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            target, value = statement.targets[0].id, statement.value
            if (isinstance(value, ast.Name) and value.id != target) or (
                isinstance(value, ast.Constant) and target.startswith("tmp")
            ):
                aliases[target] = value
            elif (number := full_number(value)) is not None:
                constants[target] = number


def _forget(aliases: dict[str, ast.expr], constants: dict[str, ast.expr], name: str) -> None:
    aliases.pop(name, None)
    constants.pop(name, None)
    for other in [k for k, v in aliases.items() if isinstance(v, ast.Name) and v.id == name]:
        del aliases[other]


# --------------------------------------------------------------------------- temporaries


def _move_once_used(function: ast.FunctionDef) -> None:
    """Moves a temporary that is assigned once and read once into the statement that reads it."""
    reads = Counter(
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )
    writes = binding_counts(function)
    single = {name for name, count in reads.items() if count == 1 and writes[name] == 1}
    _move(function.body, single)


def _move(body: list[ast.stmt], single: set[str]) -> None:
    for index in range(len(body)):
        statement = body[index]
        if isinstance(statement, ast.For | ast.If):
            _move(statement.body, single)
            _move(statement.orelse, single)
            continue
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            continue
        name = statement.targets[0].id
        if name not in single or not _movable(statement.value):
            continue
        user = _user(body, index, name, read_names(statement.value))
        if user is not None:
            changed = Substitute({name: statement.value}).apply(user)
            # Conversions on loads do not count: the text must come out the same for every dtype.
            if len(ast.unparse(changed).replace(".to(tl.float32)", "")) <= WIDTH:
                body[body.index(user)] = changed


def _movable(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant | ast.Name):
        return False
    calls = [call_name(n) for n in ast.walk(value) if isinstance(n, ast.Call)]
    return not any(c.startswith((*_OWN_LINE, *_OWN_LINE_HELPERS, *_EFFECTS)) for c in calls)


def _user(body: Sequence[ast.stmt], index: int, name: str, needs: set[str]) -> ast.stmt | None:
    """Returns the next plain statement that reads ``name``, if the names it needs are unchanged until there."""
    for statement in body[index + 1 :]:
        if isinstance(statement, ast.For | ast.If):
            if name in read_names(statement) or stored_names(statement) & needs:
                return None
            continue
        if name in read_names(statement):
            return statement
        if stored_names(statement) & needs:
            return None
    return None

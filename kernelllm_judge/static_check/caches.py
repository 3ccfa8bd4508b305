# ruff: noqa: SIM905 (words are easier to read and to sort than quoted strings)
"""Decides which functions may cache their results and which decorators a kernel module may define for itself.

``functools.cache`` keeps what it is given and what it returns. Neither can make a later call wrong if all of it is plain:
numbers, strings, dtypes, devices, shapes and tuples of these. A tensor is not, because it is found again by its identity
while its values change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelllm_judge.static_check.persistent import IMMUTABLE_BUILTINS, IMMUTABLE_FUNCTIONS, PersistentNames
from kernelllm_judge.static_check.scopes import SELF, LexicalScope, ScopedNode, paths

_RECORDS = frozenset(["collections.namedtuple", "typing.NamedTuple"])
CACHES = frozenset(["functools.cache", "functools.lru_cache"])
_ATTRIBUTES = frozenset(["device", "dtype", "is_cuda", "itemsize", "ndim", "shape"])
"""Attributes that are plain, whatever tensor has them."""
_METHODS = frozenset(
    """
        dim element_size get_device is_contiguous ndimension nelement numel size stride
    """.split()
)
"""Methods of tensors with plain results."""
_DTYPES = frozenset(
    f"{owner}.{kind}{bits}"
    for owner in ("torch", "triton.language")
    for kind, bits in [
        *(("int", n) for n in (8, 16, 32, 64)),
        *(("float", n) for n in (16, 32, 64)),
        ("bfloat", 16),
        ("uint", 8),
    ]
)
_ALWAYS_PLAIN = frozenset(["callable", "hasattr", "isinstance", "issubclass", "len"])
"""Builtins whose results are plain for all arguments."""


class Caches:
    """The functions of one module that cache their results."""

    def __init__(self, nodes: list[ScopedNode], persistent: PersistentNames) -> None:
        """Finds cached functions by their decorators."""
        self._persistent = persistent
        self._nodes = nodes
        self._functions: dict[str, list[ast.FunctionDef]] = {}
        self._members: set[str] = set()
        """Attributes that the module itself gives to something, which may be tensors."""
        self._decorators: set[int] = set()
        self._makes_records = False
        """Whether the module makes classes whose attributes only a value names."""
        bases = {id(base) for node, _ in nodes if isinstance(node, ast.ClassDef) for base in node.bases}
        for node, scope in nodes:
            if isinstance(node, ast.FunctionDef):
                self._functions.setdefault(node.name, []).append(node)
                self._decorators.update(id(_called(each)) for each in node.decorator_list)
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                self._members.add(node.attr)
            elif isinstance(node, ast.Name | ast.Attribute) and id(node) not in bases:
                self._makes_records |= not paths(node, scope).isdisjoint(_RECORDS)
        for scope in persistent.scopes.values():
            if scope.kind == "class":
                self._members |= scope.bindings.keys()

    def violations(self) -> Iterator[tuple[int, str]]:
        """Yields the line and the reason of every cache that may hold more than plain values."""
        for node, scope in self._nodes:
            if isinstance(node, ast.FunctionDef):
                named = {path for each in node.decorator_list for path in paths(_called(each), scope)}
                if named & CACHES and not self._holds_plain_values(node, scope):
                    yield (
                        node.lineno,
                        f"caches results of `{node.name}`, which may keep state between calls: "
                        "only sizes, dtypes, devices and numbers made of them can be cached",
                    )
            elif (
                isinstance(node, ast.Name | ast.Attribute)
                and isinstance(node.ctx, ast.Load)
                and id(node) not in self._decorators
                and not paths(node, scope).isdisjoint(CACHES)
            ):
                yield (
                    node.lineno,
                    "uses a cache other than as a decorator, which may keep state between calls",
                )

    def bound_once(self, name: str, scope: LexicalScope) -> bool:
        """Whether only one statement binds a name, so that it never stands for something else."""
        holders = scope.holders(name)
        return len(holders) == 1 and len(holders[0].binders.get(name, [])) == 1

    def _holds_plain_values(self, function: ast.FunctionDef, scope: LexicalScope) -> bool:
        if scope.kind != "module" or len(self._functions[function.name]) > 1:
            return False
        return self._returns_plain(function, frozenset()) and all(
            self._called_plainly(node, within)
            for node, within in self._nodes
            if isinstance(node, ast.Name) and node.id == function.name
        )

    def _called_plainly(self, name: ast.Name, scope: LexicalScope) -> bool:
        call = self._persistent.parents[id(name)]
        if not (isinstance(call, ast.Call) and call.func is name):
            return False
        return all(self._plain(each, scope, frozenset()) for each in _given(call))

    def _returns_plain(self, function: ast.FunctionDef, seen: frozenset[int]) -> bool:
        """Whether a function returns plain values for plain arguments."""
        inside = self._persistent.scopes.get(id(function))
        if inside is None or inside.parent is None or id(function) in seen:
            return False
        # Another decorator could return something else than the function does.
        if any(not paths(_called(each), inside.parent) <= CACHES for each in function.decorator_list):
            return False
        arguments = function.args
        defaults = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
        within = [node for node in ast.walk(function) if node is not function]
        if (
            arguments.vararg
            or arguments.kwarg
            or not all(isinstance(each, ast.Constant) for each in defaults)
        ):
            return False
        if any(isinstance(n, ast.FunctionDef | ast.Lambda | ast.Yield | ast.YieldFrom) for n in within):
            return False
        returned = [node.value for node in within if isinstance(node, ast.Return) and node.value]
        return all(self._plain(each, inside, seen | {id(function)}) for each in returned)

    def _plain(self, node: ast.expr, scope: LexicalScope, seen: frozenset[int]) -> bool:
        def plain(*parts: ast.expr) -> bool:
            return all(self._plain(part, scope, seen) for part in parts)

        match node:
            case ast.Constant() | ast.JoinedStr():
                return True
            case ast.Name():
                return self._plain_name(node, scope, seen)
            case ast.Tuple(elts=parts) | ast.BoolOp(values=parts):
                return plain(*parts)
            case ast.BinOp(left=left, right=right) | ast.Subscript(value=left, slice=right):
                return plain(left, right)
            case ast.Compare(left=left, comparators=others):
                return plain(left, *others)
            case ast.UnaryOp(operand=inner):
                return plain(inner)
            case ast.Slice(lower=lower, upper=upper, step=step):
                return plain(*filter(None, (lower, upper, step)))
            case ast.IfExp(body=body, orelse=orelse):
                return plain(body, orelse)
            case ast.Attribute(value=value, attr=name):
                own = paths(node, scope) <= _DTYPES or self._is_of_tensors(value, name, _ATTRIBUTES, scope)
                return own or plain(value)
            case ast.Call():
                return self._plain_call(node, scope, seen)
        return False

    def _plain_name(self, name: ast.Name, scope: LexicalScope, seen: frozenset[int]) -> bool:
        """Whether all values of a name are plain; ``seen`` holds functions whose arguments are, and targets under way."""
        holders = scope.holders(name.id)
        for holder in holders:
            given = {each.arg for each in ast.walk(holder.node) if isinstance(each, ast.arg)}
            is_argument = holder.kind == "function" and name.id in given
            stores = holder.binders.get(name.id, [])
            if is_argument and id(holder.node) not in seen:
                return False  # whatever the caller gives
            if not is_argument and not stores:
                return False  # an import or a function
            if not all(
                id(each) in seen or self._assigned(each, holder, seen | {id(each)}) for each in stores
            ):
                return False
        return bool(holders)

    def _assigned(self, target: ast.AST, scope: LexicalScope, seen: frozenset[int]) -> bool:
        """Whether a name's target gets a plain value, alone or as an element of a tuple."""
        if not isinstance(target, ast.Name | ast.Tuple):
            return False
        parent = self._persistent.parents[id(target)]
        if isinstance(parent, ast.Tuple):
            return self._assigned(parent, scope, seen)
        if isinstance(parent, ast.Assign | ast.AnnAssign | ast.AugAssign) and parent.value is not None:
            return self._plain(parent.value, scope, seen)
        return False

    def _plain_call(self, call: ast.Call, scope: LexicalScope, seen: frozenset[int]) -> bool:
        func = call.func
        if isinstance(func, ast.Name) and not scope.holders(func.id) and func.id in _ALWAYS_PLAIN:
            return True
        if isinstance(func, ast.Attribute) and self._is_of_tensors(func.value, func.attr, _METHODS, scope):
            return True
        if not all(self._plain(each, scope, seen) for each in _given(call)):
            return False
        if isinstance(func, ast.Name):
            own = self._functions.get(func.id, [])
            if own and [holder.kind for holder in scope.holders(func.id)] == ["module"]:
                return len(own) == 1 and self._returns_plain(own[0], seen)
            if not scope.holders(func.id):
                return func.id in IMMUTABLE_BUILTINS
        return all(
            path in IMMUTABLE_FUNCTIONS - {"functools.partial"} or path.startswith("math.")
            for path in paths(func, scope)
        )

    def _is_of_tensors(self, owner: ast.expr, name: str, names: frozenset[str], scope: LexicalScope) -> bool:
        """Whether an attribute of these names is the tensor's own: not the target's, nor one that the module defines."""
        of_target = any(path.partition(".")[0] == SELF for path in paths(owner, scope))
        return name in names and not (name in self._members or self._makes_records or of_target)


def passes_calls_on(
    decorator: ast.expr, scope: LexicalScope, functions: list[ast.FunctionDef | ast.ClassDef]
) -> bool:
    """Whether a decorator of the module's own returns a function that only calls the decorated one.

    Such a function keeps nothing between calls: its closure holds the decorated function and nothing else.

    Args:
        functions: the module's definitions of that name.
    """
    if not isinstance(decorator, ast.Name) or [holder.kind for holder in scope.holders(decorator.id)] != [
        "module"
    ]:
        return False
    match functions:
        case [
            ast.FunctionDef(
                args=ast.arguments(
                    posonlyargs=[],
                    args=[ast.arg(arg=given)],
                    vararg=None,
                    kwonlyargs=[],
                    kwarg=None,
                    defaults=[],
                ),
                body=[*first, ast.FunctionDef() as inner, ast.Return(value=ast.Name(id=returned))],
                decorator_list=[],
            )
        ] if inner.name == returned != given and all(map(_is_docstring, first)):
            pass
        case _:
            return False
    module = scope.holders(decorator.id)[0]
    wraps = [each for each in inner.decorator_list if isinstance(each, ast.Call) and len(each.args) == 1]
    if len(wraps) < len(inner.decorator_list) or any(
        paths(each.func, module) != {"functools.wraps"} or each.keywords for each in wraps
    ):
        return False
    if inner.args.defaults or any(inner.args.kw_defaults):
        return False
    if not all(isinstance(each.args[0], ast.Name) and each.args[0].id == given for each in wraps):
        return False
    # Annotations are evaluated in the decorator, where an assignment would bind another variable of the closure.
    signature = [inner.args, *filter(None, [inner.returns])]
    if any(isinstance(node, ast.NamedExpr) for part in signature for node in ast.walk(part)):
        return False
    called = [node.func for node in ast.walk(inner) if isinstance(node, ast.Call)]
    called += [each.args[0] for each in wraps]
    uses = [node for node in ast.walk(inner) if isinstance(node, ast.Name) and node.id == given]
    return len(uses) > len(wraps) and all(any(use is func for func in called) for use in uses)


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)

"""Finds out which names outlive a call, and whether their values can change between calls.

Such names are those of the module, of its classes, and of arguments with defaults.
"""

from __future__ import annotations

import ast
from functools import cached_property
from typing import Literal

from kernelllm_judge.static_check.allowed import NAMESPACES
from kernelllm_judge.static_check.scopes import LexicalScope, ScopedNode, paths

Kind = Literal["immutable", "container", "mutable"]
"""How a value may change: not at all; a list, set or dictionary of immutable values; anything else."""

_WORSE = ("immutable", "container", "mutable")

IMMUTABLE_BUILTINS = frozenset(
    (
        *("abs", "bool", "complex", "divmod", "float", "frozenset", "hex", "int", "len", "max", "min"),
        *("ord", "pow", "print", "range", "round", "str", "sum", "tuple"),
    )
)
_CONTAINER_BUILTINS = frozenset(["dict", "list", "set", "sorted"])
_PASSING_ON = frozenset(["enumerate", "reversed", "zip"])
_READING_BUILTINS = frozenset([*IMMUTABLE_BUILTINS, *_CONTAINER_BUILTINS, *_PASSING_ON, "all", "any"])
"""Builtins that only read a container that they are given."""
_READING_METHODS = frozenset(["copy", "count", "get", "index", "items", "keys", "values"])
IMMUTABLE_FUNCTIONS = frozenset(
    (
        *(f"torch.{name}" for name in ("Size", "can_cast", "device", "finfo", "iinfo", "promote_types")),
        *(f"torch.cuda.{name}" for name in ("current_device", "device_count", "is_available")),
        *(f"torch.cuda.get_device_{name}" for name in ("capability", "name", "properties")),
        *(f"triton.{name}" for name in ("cdiv", "next_power_of_2", "language.cdiv", "language.constexpr")),
        *(f"triton.runtime.driver.active.get_{name}" for name in ("active_torch_device", "current_target")),
        "contextlib.nullcontext",
        "functools.partial",
    )
)
"""Functions that return immutable values for immutable arguments, as all of ``math`` do."""
_LAUNCHED = frozenset(["triton.autotune", "triton.heuristics", "triton.jit"])
"""Decorators that return kernels, which are immutable for this check."""
_CONTAINER_CALLS = frozenset(["triton.runtime.driver.active.utils.get_device_properties"])
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp


class PersistentNames:
    """The names of one module that outlive a call, with the kind of their values."""

    def __init__(self, nodes: list[ScopedNode]) -> None:
        """Determines the kind of every name that is bound on import."""
        self._tree = nodes[0].node
        self.scopes = {id(scoped.scope.node): scoped.scope for scoped in nodes}
        self.changeable: dict[tuple[int, str], Kind] = {}
        """Kinds by the id of a scope's node and the name; names that are not listed are immutable."""
        importing = {id(scope) for scope in self.scopes.values() if not runs_in_a_call(scope)}
        self.on_import = [scoped for scoped in nodes if id(scoped.scope) in importing]
        """Nodes that are evaluated when the module is imported."""
        self.in_calls = [scoped for scoped in nodes if id(scoped.scope) not in importing]
        # A fixed point: values may depend on names that are bound later. Kinds only get worse, so it ends.
        before: dict[tuple[int, str], Kind] = {(0, ""): "immutable"}
        while before != self.changeable:
            before = dict(self.changeable)
            for node, scope in self.on_import:
                self._bindings(node, scope)

    @cached_property
    def parents(self) -> dict[int, ast.AST]:
        """The parent of each node, by the node's id."""
        found: dict[int, ast.AST] = {}
        stack = [self._tree]
        while stack:
            node = stack.pop()
            for child in ast.iter_child_nodes(node):
                found[id(child)] = node
                stack.append(child)
        return found

    def is_called(self, node: ast.AST) -> bool:
        """Whether an expression is the function of a call."""
        call = self.parents[id(node)]
        return isinstance(call, ast.Call) and call.func is node

    def assigned_in_call(self, name: str, scope: LexicalScope) -> list[ast.expr]:
        """Returns all values that are assigned to a function's local name; empty if one is unknown."""
        holders = scope.holders(name)
        holder = holders[0] if len(holders) == 1 else scope
        if not isinstance(holder.node, ast.FunctionDef):
            return []
        arguments = {each.arg for each in ast.walk(holder.node.args) if isinstance(each, ast.arg)}
        values: list[ast.expr] = []
        for node, within in self.in_calls:
            if (
                within is holder
                and isinstance(node, ast.Name)
                and node.id == name
                and not isinstance(node.ctx, ast.Load)
            ):
                parent = self.parents[id(node)]
                if not isinstance(parent, ast.Assign):
                    return []
                values.append(parent.value)
        return [] if name in arguments else values

    def kind_of_name(self, name: str, scope: LexicalScope) -> Kind:
        """Returns the worst kind of a name over all scopes in which Python may find it."""
        return max(
            (self.held_in(holder, name) for holder in scope.holders(name)),
            key=_WORSE.index,
            default="immutable",
        )

    def held_in(self, holder: LexicalScope, name: str) -> Kind:
        """Returns the kind of a name in one scope."""
        return self.changeable.get((id(holder.node), name), "immutable")

    def only_read(self, node: ast.Name, scope: LexicalScope) -> bool:
        """Whether a container's name is used in a way that neither changes the container nor passes it on."""
        match parent := self.parents[id(node)]:
            case ast.Subscript(value=value, ctx=ast.Load()):
                return value is node
            case ast.Attribute(attr=name):
                return name in _READING_METHODS and self.is_called(parent)
            case ast.Call(func=ast.Name(id=name), args=args):
                # With several arguments these may return the container itself.
                own = len(args) == 1 or name not in ("max", "min", "sum")
                return own and name in _READING_BUILTINS and not scope.holders(name)
            case ast.For(iter=source) | ast.comprehension(iter=source):
                return source is node
            case ast.keyword(arg=arg):
                return arg is None
            case ast.If(test=test) | ast.IfExp(test=test):
                return test is node
            case ast.Compare() | ast.Starred() | ast.UnaryOp() | ast.BinOp() | ast.FormattedValue():
                return True
        return False

    def kind(self, node: ast.expr, scope: LexicalScope) -> Kind:
        """Returns the kind of an expression's value on import."""
        match node:
            case ast.Constant() | ast.Lambda() | ast.JoinedStr():
                return "immutable"
            case ast.Compare(left=left, comparators=others):  # of tensors, a tensor
                return (
                    "mutable"
                    if "mutable" in {self.kind(each, scope) for each in (left, *others)}
                    else "immutable"
                )
            case ast.Name(id=name):
                return self.kind_of_name(name, scope)
            case ast.Tuple(elts=parts) | ast.BoolOp(values=parts):
                return self._whole("immutable", parts, scope)
            case ast.UnaryOp(operand=operand):
                return self._whole("immutable", [operand], scope)
            case ast.BinOp(left=left, right=right):
                return self._whole("immutable", [left, right], scope)
            case ast.IfExp(body=body, orelse=orelse):
                return self._whole("immutable", [body, orelse], scope)
            case ast.List(elts=parts) | ast.Set(elts=parts):
                return self._whole("container", parts, scope)
            case ast.Dict(keys=keys, values=values):
                return self._whole("container", [*filter(None, keys), *values], scope)
            case ast.ListComp() | ast.SetComp() | ast.DictComp():
                return self._of_comprehension(node, scope)
            case ast.Attribute(value=value):
                known = all(map(_in_namespace, paths(node, scope)))
                return "immutable" if known else self._whole("immutable", [value], scope)
            case ast.Subscript(value=value, slice=ast.Constant() | ast.UnaryOp()):
                return "mutable" if self.kind(value, scope) == "mutable" else "immutable"
            case ast.Subscript(value=value):  # perhaps a slice of it
                return self.kind(value, scope)
            case ast.Call(func=func, args=args, keywords=keywords):
                return self._of_call(func, [*args, *(keyword.value for keyword in keywords)], scope)
        return "mutable"

    # ------------------------------------------------------------------ values

    def _whole(self, kind: Kind, parts: list[ast.expr], scope: LexicalScope) -> Kind:
        return kind if all(self.kind(part, scope) == "immutable" for part in parts) else "mutable"

    def _of_comprehension(self, node: _COMPREHENSIONS, scope: LexicalScope) -> Kind:
        inside = self.scopes.get(id(node), scope)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        readable = all(self._can_be_read(generator.iter, inside) for generator in node.generators)
        return self._whole("container", parts, inside) if readable else "mutable"

    def _can_be_read(self, source: ast.expr, scope: LexicalScope) -> bool:
        """Whether iterating over an expression yields immutable values."""
        match source:
            case ast.Call(func=ast.Name(id=name), args=args) if name in _PASSING_ON and not scope.holders(
                name
            ):
                return all(self._can_be_read(each, scope) for each in args)
        return self.kind(source, scope) != "mutable"

    def _of_call(self, func: ast.expr, given: list[ast.expr], scope: LexicalScope) -> Kind:
        func = func.func if isinstance(func, ast.Call) else func  # triton.autotune(...)(function)
        kinds = {self.kind(each, scope) for each in given}
        called = paths(func, scope)
        if isinstance(func, ast.Name) and not scope.holders(func.id):
            if kinds <= {"immutable"} or (kinds == {"container"} and len(given) == 1):
                # max(SIZES) is one of them, but max([1], [2]) a list.
                return (
                    "immutable"
                    if func.id in IMMUTABLE_BUILTINS
                    else _container_if(func.id in _CONTAINER_BUILTINS)
                )
            return _container_if(func.id in _CONTAINER_BUILTINS and "mutable" not in kinds)
        if called == {"collections.namedtuple"}:
            return "immutable" if "mutable" not in kinds else "mutable"
        if called <= _LAUNCHED:
            return "immutable"
        if called <= _CONTAINER_CALLS:
            return "container"
        if all(path in IMMUTABLE_FUNCTIONS or path.startswith("math.") for path in called):
            return "immutable" if kinds <= {"immutable"} else "mutable"
        if isinstance(func, ast.Attribute) and "mutable" not in kinds and not any(map(_in_namespace, called)):
            owner = self.kind(func.value, scope)  # of a string, or a dictionary
            return _container_if(
                owner == "immutable" or (owner == "container" and func.attr in _READING_METHODS)
            )
        return "mutable"

    # ------------------------------------------------------------------ names

    def _bindings(self, node: ast.AST, scope: LexicalScope) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value, scope, alone=len(targets) == 1)
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.AugAssign(target=ast.Name() as target, value=value)
            ):
                self._bind(target, value, scope)
            case ast.NamedExpr(target=target, value=value):
                self._bind(target, value, scope, alone=False)
            case ast.For(target=target, iter=source) if not self._can_be_read(source, scope) or _starred(
                target
            ):
                self._mark_mutable(target, scope)
            case (
                ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name))
            ):
                self._mark_mutable(ast.Name(name), scope)
            case ast.withitem(optional_vars=ast.expr() as target):
                self._mark_mutable(target, scope)
            case ast.FunctionDef() | ast.Lambda():
                self._defaults(node.args, self.scopes.get(id(node)), scope)
            case ast.Name(id=name, ctx=ast.Load()):
                # A container that is passed on may be changed, or filled with mutable values.
                if self.kind_of_name(name, scope) == "container" and not self.only_read(node, scope):
                    for holder in scope.holders(name):
                        self._record(holder, name, "mutable")

    def _bind(self, target: ast.expr, value: ast.expr, scope: LexicalScope, alone: bool = True) -> None:
        """``alone``: whether the value gets no other name than the target."""
        match target, value:
            case ast.Name(id=name), _:
                kind = self.kind(value, scope)
                # A container with two names could be changed by one and read by the other.
                shared = kind == "container" and (isinstance(value, ast.Name) or not alone)
                # An assignment expression in a comprehension binds in the scope around it.
                for holder in scope.holders(name):
                    self._record(holder, name, "mutable" if shared else kind)
            case _ if _starred(target):
                self._mark_mutable(target, scope)
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for each, of in zip(targets, values, strict=True):
                    self._bind(each, of, scope, alone)
            case _ if self.kind(value, scope) != "immutable":
                self._mark_mutable(target, scope)

    def _defaults(self, arguments: ast.arguments, inside: LexicalScope | None, scope: LexicalScope) -> None:
        if inside is None:  # an empty body
            return
        by_position = [*arguments.posonlyargs, *arguments.args]
        pairs: list[tuple[ast.arg, ast.expr | None]] = [
            *zip(reversed(by_position), reversed(arguments.defaults), strict=False),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        for argument, default in pairs:
            if default is not None:
                self._record(inside, argument.arg, self.kind(default, scope))

    def _mark_mutable(self, target: ast.expr, scope: LexicalScope) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                for holder in scope.holders(node.id):
                    self._record(holder, node.id, "mutable")

    def _record(self, scope: LexicalScope, name: str, kind: Kind) -> None:
        worst = max(self.held_in(scope, name), kind, key=_WORSE.index)
        if worst != "immutable":
            self.changeable[id(scope.node), name] = worst


def runs_in_a_call(scope: LexicalScope | None) -> bool:
    """Whether a scope's code runs when a function is called, and not on import."""
    while scope is not None:
        if scope.kind == "function":
            return True
        scope = scope.parent
    return False


def _container_if(condition: bool) -> Kind:
    return "container" if condition else "mutable"


def _starred(target: ast.expr) -> bool:
    return any(isinstance(node, ast.Starred) for node in ast.walk(target))


def _in_namespace(path: str) -> bool:
    holder, _, name = path.rpartition(".")
    return name in NAMESPACES.get(holder, ()) or path in NAMESPACES

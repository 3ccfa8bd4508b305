"""Finds state that a kernel module could keep between calls.

It is refused, because tests cannot show what later calls do.

Names that outlive a call may hold immutable values (numbers, strings, tuples of them, dtypes, functions),
and lists and dictionaries of those that are only read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelllm_judge.static_check.allowed import MEMBERS, WITH_CONTEXT
from kernelllm_judge.static_check.caches import Caches, passes_calls_on
from kernelllm_judge.static_check.persistent import PersistentNames, runs_in_a_call
from kernelllm_judge.static_check.scopes import OWN_CLASS, SELF, UNKNOWN, LexicalScope, ScopedNode, paths

_CHANGING_METHODS = frozenset(
    ["append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"]
)
"""Methods that change lists and dictionaries; tensors have none of these."""
_DECORATORS = frozenset(["classmethod", "property", "staticmethod"])
_AUTOCAST = frozenset(f"torch.{amp}.custom_{way}" for amp in ("amp", "cuda.amp") for way in ("fwd", "bwd"))
_MAKERS = ast.FunctionDef | ast.Lambda | ast.GeneratorExp | ast.Yield | ast.YieldFrom

Definitions = dict[str, list[ast.FunctionDef | ast.ClassDef]]


def find_kept_state(nodes: list[ScopedNode]) -> Iterator[tuple[int, str]]:
    """Yields the line and the reason of everything by which a module could keep state between calls."""
    persistent = PersistentNames(nodes)
    own = _own_definitions(nodes)
    caches = Caches(nodes, persistent)
    yield from caches.violations()
    finished = [scope for scope in persistent.scopes.values() if _is_finished(scope)]
    # Only a few names need a check.
    names = {name for _, name in persistent.changeable}.union(*(scope.bindings for scope in finished))
    for node, scope in persistent.on_import:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Call | ast.Attribute):
            yield from ((node.lineno, reason) for reason in _on_import(node, scope, persistent, own, caches))
    for node, scope in persistent.in_calls:
        if isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
            yield from ((node.lineno, reason) for reason in _read(node, scope, persistent))
        elif (changed := _changed(node)) is not None and _is_of_another(changed, scope):
            line = getattr(node, "lineno", 1)
            yield line, f"changes `{ast.unparse(changed)[:60]}`, which may keep state between calls"
        elif isinstance(node, ast.Attribute) and (
            _is_tritons(node, scope, persistent, own) or _is_autograds(node, scope, persistent)
        ):
            yield node.lineno, f"touches `{node.attr}`, which may keep state between calls"
    for number, name in persistent.changeable:
        cls = persistent.scopes[number].node
        if isinstance(cls, ast.ClassDef):
            yield cls.lineno, f"may keep state between calls in `{name}` of a class"


def _read(node: ast.Name, scope: LexicalScope, persistent: PersistentNames) -> Iterator[str]:
    for holder in scope.holders(node.id):
        kind = persistent.held_in(holder, node.id)
        if kind == "mutable" or _is_finished(holder):
            yield f"may keep state between calls in `{node.id}`, which holds more than numbers and names"
        elif kind == "container" and not persistent.only_read(node, scope):
            yield f"may keep state between calls in `{node.id}`: lists and dictionaries can only be read here"


def _is_finished(scope: LexicalScope) -> bool:
    """Whether a scope is that of a comprehension that ran on import; a later reader has kept its names."""
    return scope.kind == "comprehension" and not runs_in_a_call(scope)


def _changed(node: ast.AST) -> ast.expr | None:
    """Returns the list or dictionary that a node may change, or None."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _CHANGING_METHODS:
            return value
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
            return value
    return None


def _is_of_another(changed: ast.expr, scope: LexicalScope) -> bool:
    """Whether a list or dictionary may belong to the target or another object, not to this call only."""
    if any(path.partition(".")[0] == SELF for path in paths(changed, scope)):
        return True
    return isinstance(changed, ast.Attribute) and changed.attr not in MEMBERS


def _is_tritons(
    node: ast.Attribute, scope: LexicalScope, persistent: PersistentNames, own: Definitions
) -> bool:
    """Whether ``.keys`` or ``.values`` may be the list or dictionary of that name on Triton's functions.

    It is not if it is called, like a dictionary's method, and not if it is the ``values`` of
    ``torch.max``'s result.
    """
    if node.attr not in ("keys", "values") or persistent.is_called(node):
        return False
    if node.attr == "values" and isinstance(node.value, ast.Name):
        values = persistent.assigned_in_call(node.value.id, scope)
        return not values or not all(_is_torchs(value, scope, own) for value in values)
    return node.attr == "keys" or not _is_torchs(node.value, scope, own)


def _is_autograds(node: ast.Attribute, scope: LexicalScope, persistent: PersistentNames) -> bool:
    """Whether a method that stores on its ``ctx`` may get an object that outlives the call."""
    if node.attr not in WITH_CONTEXT or paths(node.value, scope).isdisjoint((UNKNOWN, OWN_CLASS)):
        return False
    call = persistent.parents[id(node)]
    if not isinstance(call, ast.Call) or call.func is not node:
        return True
    match call.args:
        case [ast.Constant(value=None), *_]:
            return False
        case [ast.Name(id=name), *_]:
            # An autograd function passes on its own context.
            return not any(_is_context(name, holder) for holder in scope.holders(name))
    return True


def _is_context(name: str, holder: LexicalScope) -> bool:
    function = holder.node
    return (
        isinstance(function, ast.FunctionDef)
        and function.name in WITH_CONTEXT
        and holder.parent is not None
        and holder.parent.kind == "class"
        and function.args.args[:1] != []
        and function.args.args[0].arg == name
    )


def _is_torchs(node: ast.expr, scope: LexicalScope, own: Definitions) -> bool:
    """Whether an expression is the result of a torch function or of a tensor's method."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in MEMBERS:
            return name not in own
        case ast.Call(func=func):
            return all(path.startswith("torch.") for path in paths(func, scope))
    return False


def _on_import(
    node: ast.AST, scope: LexicalScope, persistent: PersistentNames, own: Definitions, caches: Caches
) -> Iterator[str]:
    """Yields reasons for functions that may keep state in variables of their own."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            # `forward` itself is called with what its own signature says.
            wrappable = isinstance(node, ast.FunctionDef) and (scope.kind == "class" or name != "forward")
            if any(
                _is_own(each, scope)
                and not (
                    isinstance(each, ast.Name)
                    and caches.bound_once(each.id, scope)
                    and (
                        _is_autocast(each, persistent)
                        or (wrappable and passes_calls_on(each, scope, own.get(each.id, [])))
                    )
                )
                for each in node.decorator_list
            ):
                yield f"decorates `{name}` with a function that may keep state between calls"
        case ast.Call(func=func):
            partial = (
                paths(func, scope) == {"functools.partial"} and persistent.kind(node, scope) == "mutable"
            )
            if partial or _makes_functions(func, own, persistent):
                yield "makes a function on import, which may keep state between calls"
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            if persistent.kind_of_name(owner, scope) != "immutable" and not persistent.is_called(node):
                yield f"passes on `{owner}.{name}`, which may keep state between calls"


def _own_definitions(nodes: list[ScopedNode]) -> Definitions:
    """Returns all functions and classes of the module, nested ones too, by name."""
    found: Definitions = {}
    for node, _ in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, []).append(node)
    return found


def _is_own(decorator: ast.expr, scope: LexicalScope) -> bool:
    """Whether a decorator may be a function of the module itself and not an imported one."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(called, ast.Name) and called.id in _DECORATORS and not scope.holders(called.id):
        return False
    return not paths(called, scope).isdisjoint((UNKNOWN, OWN_CLASS, "functools.partial"))


def _is_autocast(decorator: ast.Name, persistent: PersistentNames) -> bool:
    """Whether a name that is bound once is PyTorch's ``custom_fwd`` or ``custom_bwd`` with fixed arguments."""
    match [(node, where) for node, where in persistent.on_import if decorator.id in _assigned(node)]:
        case [(ast.Assign(value=ast.Call(func=func, args=[function]) as value), where)]:
            fixed = persistent.kind(value, where) == "immutable"
            partial = paths(func, where) == {"functools.partial"}
            return fixed and partial and paths(function, where) <= _AUTOCAST
    return False


def _assigned(node: ast.AST) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _makes_functions(called: ast.expr, own: Definitions, persistent: PersistentNames) -> bool:
    """Whether a call may create functions, generators or objects, which keep the variables around them."""
    seen: set[int] = set()
    work = _named(called, own)
    while work:
        body = work.pop()
        if isinstance(body, ast.ClassDef):
            return True
        if id(body) not in seen:
            seen.add(id(body))
            scope = persistent.scopes.get(id(body))
            if scope is not None and any(
                _makes_one(node, scope, persistent) for node in ast.walk(body) if node is not body
            ):
                return True
            work += _named(body, own)
    return False


def _makes_one(node: ast.AST, scope: LexicalScope, persistent: PersistentNames) -> bool:
    """Whether a node creates one. A generator expression that is a call's argument ends with that call."""
    if isinstance(node, ast.Call):
        return "functools.partial" in paths(node.func, scope)
    return isinstance(node, _MAKERS) and not (
        isinstance(node, ast.GeneratorExp) and isinstance(persistent.parents[id(node)], ast.Call)
    )


def _named(node: ast.AST, own: Definitions) -> list[ast.FunctionDef | ast.ClassDef | ast.Lambda]:
    """Returns the module's own functions and classes that a node names, and the lambdas in it."""
    found: list[ast.FunctionDef | ast.ClassDef | ast.Lambda] = []
    for each in ast.walk(node):
        if isinstance(each, ast.Lambda):
            found.append(each)
        elif isinstance(each, ast.Name):
            found += own.get(each.id, [])
    return found

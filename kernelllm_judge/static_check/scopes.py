"""Resolves names in a kernel module to the modules and objects that they stand for.

A *path* is a dotted name (``torch.nn.functional``). ``SELF``, and paths that begin with it, is the
target's instance; ``OWN_CLASS`` is a class that the module defines; ``UNKNOWN`` is everything else:
tensors, numbers, results of calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

UNKNOWN = ""
SELF = "self"
OWN_CLASS = "class"
ITEM = "[]"
"""Stands in a path of the target's for any subscript: ``self.net[0].weight`` is ``self.net.[].weight``."""

_DEEPEST = 6
"""Most attributes after a name that are resolved; no allowed module lies deeper."""
_PATIENCE = 2000
"""Most steps to resolve one expression; honest code needs about a dozen."""

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_WITHOUT_NAMES = ast.expr_context | ast.operator | ast.unaryop | ast.cmpop | ast.boolop | ast.Constant
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class TooManyAliases(ValueError):
    """An expression goes through too many aliases to resolve it."""


class Alias(NamedTuple):
    """Another name and the attributes after it: ``F = nn.functional`` makes ``F`` an alias of those two."""

    name: str
    tail: tuple[str, ...]


@dataclass
class LexicalScope:
    """One of Python's scopes, with the names that it binds and the scope around it."""

    kind: str
    node: ast.AST
    parent: LexicalScope | None = None
    bindings: dict[str, set[str | Alias]] = field(default_factory=dict)
    binders: dict[str, list[ast.AST]] = field(default_factory=dict)
    """What binds each name, but for arguments."""

    def bind(self, name: str, value: str | Alias = UNKNOWN, by: ast.AST | None = None) -> None:
        """Adds a path or an alias that a name may stand for, and the node that binds it."""
        self.bindings.setdefault(name, set()).add(value)
        if by is not None:
            self.binders.setdefault(name, []).append(by)

    def holders(self, name: str) -> list[LexicalScope]:
        """Returns the scopes in which Python may find a name.

        There may be several: in a class body, a name that is not bound yet is looked up in the scopes
        around it.
        """
        found: list[LexicalScope] = []
        scope: LexicalScope | None = self
        while scope is not None:
            if name in scope.bindings and (scope is self or scope.kind != "class"):
                found.append(scope)
                if scope.kind in ("function", "comprehension"):
                    break
            scope = scope.parent
        return found

    def certain(self, name: str) -> bool:
        """Whether a name never means a builtin. In modules and classes it may, until it is bound."""
        return any(scope.kind in ("function", "comprehension") for scope in self.holders(name))


class ScopedNode(NamedTuple):
    """A node of the syntax tree and the scope in which it is evaluated."""

    node: ast.AST
    scope: LexicalScope


def scoped_nodes(tree: ast.Module) -> list[ScopedNode]:
    """Returns every node with its scope; all names are bound when it returns."""
    found: list[ScopedNode] = []
    aliases: set[int] = set()
    stack: list[tuple[ast.AST, LexicalScope]] = [(tree, LexicalScope("module", tree))]
    while stack:
        node, scope = stack.pop()
        if isinstance(node, _WITHOUT_NAMES):
            continue
        found.append(ScopedNode(node, scope))
        _bind(node, scope, aliases)
        stack += reversed([*_children(node, scope)])
    return found


def paths(node: ast.expr, scope: LexicalScope) -> frozenset[str]:
    """Returns the paths of everything that an expression may stand for.

    Raises:
        TooManyAliases: too many aliases of aliases.
    """
    start = _alias(node)
    if start is None:
        return frozenset([UNKNOWN])
    found: set[str] = set()
    seen: set[tuple[Alias, int]] = set()
    work = [(start, scope)]
    while work:
        alias, scope = work.pop()
        if (alias, id(scope)) in seen:
            continue
        seen.add((alias, id(scope)))
        holders = scope.holders(alias.name)
        if len(seen) + len(work) + sum(len(holder.bindings[alias.name]) for holder in holders) > _PATIENCE:
            raise TooManyAliases(f"`{alias.name}` may stand for too many things")
        if not holders:
            found.add(UNKNOWN)
        for holder in holders:
            for value in holder.bindings[alias.name]:
                if isinstance(value, str):
                    known = value == SELF or ITEM not in alias.tail
                    known = known and (value not in (UNKNOWN, OWN_CLASS) or not alias.tail)
                    found.add(".".join((value, *alias.tail)) if known else UNKNOWN)
                elif len(value.tail) + len(alias.tail) > _DEEPEST:
                    found.add(UNKNOWN)
                else:
                    work.append((Alias(value.name, value.tail + alias.tail), holder))
    return frozenset(found or {UNKNOWN})


def _alias(node: ast.expr) -> Alias | None:
    """Returns a name and the attributes after it; None for other expressions, and for too many attributes."""
    tail: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript) and len(tail) <= _DEEPEST:
        tail.append(node.attr if isinstance(node, ast.Attribute) else ITEM)
        node = node.value
    return Alias(node.id, tuple(reversed(tail))) if isinstance(node, ast.Name) else None


def _bind(node: ast.AST, scope: LexicalScope, aliases: set[int]) -> None:
    """Binds the names that a node binds in its scope; ``aliases`` holds targets that are bound already."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                first = alias.name.partition(".")[0]
                scope.bind(alias.asname or first, alias.name if alias.asname else first, node)
        case ast.ImportFrom(module=module, names=names):
            for alias in names:
                scope.bind(alias.asname or alias.name, f"{module}.{alias.name}", node)
        case ast.ClassDef(name=name):
            scope.bind(name, OWN_CLASS, node)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            scope.bind(name, by=node)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            scope.bind(name, by=node)
        case ast.MatchMapping(rest=str(name)):
            scope.bind(name, by=node)
        case (
            ast.Assign(targets=[ast.Name(id=name) as target], value=value)
            | ast.AnnAssign(target=ast.Name(id=name) as target, value=ast.expr() as value)
        ):
            scope.bind(name, _alias(value) or UNKNOWN, target)
            aliases.add(id(target))
        case ast.NamedExpr(target=ast.Name(id=name) as target):
            aliases.add(id(target))
            while scope.kind == "comprehension" and scope.parent is not None:
                scope = scope.parent
            scope.bind(name, by=target)
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if id(node) not in aliases:
            scope.bind(name, by=node)


def _children(node: ast.AST, scope: LexicalScope) -> Iterator[tuple[ast.AST, LexicalScope]]:
    """Yields a node's children, each with the scope in which it is evaluated."""
    inside = scope
    outside: list[ast.AST] = []
    if isinstance(node, _Function):
        inside = LexicalScope("function", node, scope)
        arguments = node.args
        outside = [*arguments.defaults, *(default for default in arguments.kw_defaults if default)]
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [extra for extra in (arguments.vararg, arguments.kwarg) if extra]
        for argument in every:
            inside.bind(argument.arg, SELF if argument.arg == "self" else UNKNOWN)
            outside += [argument]
        if not isinstance(node, ast.Lambda):
            outside += [*node.decorator_list, *([node.returns] if node.returns else [])]
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
    elif isinstance(node, ast.ClassDef):
        inside = LexicalScope("class", node, scope)
        outside = [*node.bases, *node.keywords, *node.decorator_list]
        body = [*node.body]
    elif isinstance(node, _Comprehension):
        inside = LexicalScope("comprehension", node, scope)
        outside = [node.generators[0].iter]
        body = list(ast.iter_child_nodes(node))
    else:
        body = list(ast.iter_child_nodes(node))
    yield from ((child, scope) for child in outside)
    yield from ((child, inside) for child in body)

"""The static check: refuses a kernel module by its source, before any of it runs.

It is the first line of defence and not the last: what it accepts still runs in an isolated worker and is
compared with the original.
"""

from __future__ import annotations

import ast
import builtins
import re
import string
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from pytest_kernelllm.core.program import parse
from pytest_kernelllm.judge.static_check.allowed import (
    BASES,
    BUILTINS,
    DUNDERS,
    ENUMERATIONS,
    INSIDE_TORCH,
    INSIDE_TRITON,
    MEMBERS,
    NAMESPACES,
    OTHER_MEMBERS,
    WITH_CONTEXT,
)
from pytest_kernelllm.judge.static_check.scopes import (
    ITEM,
    OWN_CLASS,
    SELF,
    UNKNOWN,
    LexicalScope,
    ScopedNode,
    TooManyAliases,
    paths,
    scoped_nodes,
)
from pytest_kernelllm.judge.static_check.state import find_kept_state

LONGEST_SOURCE = 1 << 20
"""Most characters of a kernel module, to bound the time of the check."""

_INSIDE_PYTHON = (
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.FrameType,
    types.TracebackType,
    types.CodeType,
    types.FunctionType,
    types.MethodType,
    property,
)
_DECLARES_ENCODING = re.compile(r"#.*?coding[:=][ \t]*([-\w.]+)")


@dataclass(frozen=True)
class Violation:
    """Something in the source that a kernel must not use; the reason follows the word "it"."""

    line: int
    reason: str


def find_violations(source: str) -> list[Violation]:
    """Finds what a kernel module must not contain, at most one violation per line; empty if it may run."""
    if len(source) > LONGEST_SOURCE:
        return [Violation(1, f"is longer than {LONGEST_SOURCE:,} characters")]
    if encoding := _other_encoding(source):
        return [
            Violation(
                1, f"declares the encoding {encoding}, so Python would run other code than the check reads"
            )
        ]
    try:
        tree = parse(source.encode())
        violations = _read(_PropertiesOfGpus(tree).visit(tree))
    except TooManyAliases as error:
        return [Violation(1, f"has names that cannot be resolved: {error}")]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [Violation(getattr(error, "lineno", 0) or 1, f"is not Python: {error}")]
    if "forward" not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
        violations.append(Violation(1, "defines no function `forward`"))
    by_line: dict[int, Violation] = {}
    for violation in violations:
        by_line.setdefault(violation.line, violation)
    return [by_line[line] for line in sorted(by_line)]


def _other_encoding(source: str) -> str | None:
    """Returns an encoding other than UTF-8 that the file declares, or None. It may turn a comment into code."""
    for line in re.split(r"[\r\n]", source, maxsplit=4)[:4]:
        declared = _DECLARES_ENCODING.search(line)
        if declared and declared[1].lower().replace("_", "-") not in ("utf-8", "utf8"):
            return declared[1]
    return None


class _PropertiesOfGpus(ast.NodeTransformer):
    """Reads ``getattr(torch.cuda.get_device_properties(…), "name", default)`` as an attribute, for the check only.

    Kernels ask so for what an older torch does not know. Of other objects, attributes are not got by name.
    """

    def __init__(self, tree: ast.Module) -> None:
        names = {getattr(node, field, None) for node in ast.walk(tree) for field in ("name", "arg", "asname")}
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self._builtin = "getattr" not in names | stored

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replaces the call by a choice between the attribute and the default."""
        self.generic_visit(node)
        match node:
            case ast.Call(
                func=ast.Name(id="getattr"),
                args=[
                    ast.Call(func=ast.Attribute(attr="get_device_properties")) as value,
                    ast.Constant(value=str(name)),
                    default,
                ],
                keywords=[],
            ) if self._builtin and name.isidentifier():
                attribute = ast.copy_location(ast.Attribute(value, name, ast.Load()), node)
                test = ast.copy_location(ast.Constant(True), node)
                return ast.copy_location(ast.IfExp(test, attribute, default), node)
        return node


def _read(tree: ast.Module) -> list[Violation]:
    nodes = scoped_nodes(tree)
    roots = _module_positions(nodes)
    bases = {id(base) for node, _ in nodes if isinstance(node, ast.ClassDef) for base in node.bases}
    violations = []
    for scoped in nodes:
        line = getattr(scoped.node, "lineno", 1)
        reasons = [*_node(scoped), *_module_as_value(scoped, roots), *_enumeration_as_value(scoped, bases)]
        violations += [Violation(line, reason) for reason in reasons]
    return violations + [Violation(line, reason) for line, reason in find_kept_state(nodes)]


def _module_positions(nodes: list[ScopedNode]) -> set[int]:
    """Returns the ids of nodes that may be a module.

    They are before a dot, after ``name =``, in ``hasattr`` and in conditions.
    """
    found: set[int] = set()
    for scoped in nodes:
        match scoped.node:
            case ast.Attribute(value=value):
                found.add(id(value))
            case (
                ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(target=ast.Name(), value=value)
            ):
                found.add(id(value))
            case ast.Call(func=ast.Name(id="hasattr"), args=[first, ast.Constant()]):
                found.add(id(first))
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()]):
                found.add(id(left))
            case ast.If(test=test) | ast.IfExp(test=test) | ast.UnaryOp(op=ast.Not(), operand=test):
                found.add(id(test))
    return found


def _module_as_value(scoped: ScopedNode, roots: set[int]) -> Iterator[str]:
    node = scoped.node
    if (
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and id(node) not in roots
    ):
        for path in sorted(paths(node, scoped.scope) & NAMESPACES.keys()):
            yield f"passes the module `{path}` around"


def _enumeration_as_value(scoped: ScopedNode, bases: set[int]) -> Iterator[str]:
    """Yields a reason if ``enum.Enum`` is used other than as a base, such as to make a class in a call."""
    node = scoped.node
    if (
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and id(node) not in bases
    ):
        for path in sorted(paths(node, scoped.scope) & ENUMERATIONS):
            yield f"uses {path} other than as a base, which may keep state between calls"


def _node(scoped: ScopedNode) -> Iterator[str]:
    """Yields what is wrong with one node."""
    node, scope = scoped.node, scoped.scope
    match node:
        case ast.Import(names=names):
            yield from (f"imports {alias.name}" for alias in names if alias.name not in NAMESPACES)
        case ast.ImportFrom():
            yield from _import_from(node)
        case ast.Attribute():
            yield from _attribute(node, scope)
        case ast.Name(id=name):
            builtin = name in _REFUSED_BUILTINS and isinstance(node.ctx, ast.Load)
            if (_is_dunder(name) and name not in DUNDERS) or (builtin and not scope.certain(name)):
                yield f"uses `{name}`"
        case ast.FunctionDef(name=name) | ast.arg(arg=name) | ast.alias(asname=str(name)):
            if _is_dunder(name) and name not in DUNDERS:
                yield f"defines `{name}`"
        case ast.ClassDef():
            yield from _class(node, scope)
        case ast.Global() | ast.Nonlocal():
            yield "keeps state in a global variable"
        case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
            yield "runs code asynchronously"
        case ast.MatchClass(kwd_attrs=names):
            yield from (f"touches `{name}`" for name in names if _is_guarded(name))


def _import_from(node: ast.ImportFrom) -> Iterator[str]:
    allowed = NAMESPACES.get(node.module or "") if not node.level else None
    for alias in node.names:
        path = f"{node.module}.{alias.name}"
        if allowed is None or alias.name == "*":
            yield f"imports from {'.' * node.level}{node.module or ''}" + (" *" if alias.name == "*" else "")
        elif alias.name not in allowed and path not in NAMESPACES:
            yield f"imports {path}"


def _attribute(node: ast.Attribute, scope: LexicalScope) -> Iterator[str]:
    name = node.attr
    if not isinstance(node.ctx, ast.Load):
        yield from _changed_attribute(node, scope)
    elif name in ("format", "format_map"):
        if not (name == "format" and _is_plain_template(node.value)):
            yield f"uses `.{name}`, which can read any attribute; use an f-string"
    elif name == "__init__" and _is_super(node.value):
        return
    else:
        for path in sorted(paths(node.value, scope)):
            reason = _member(path, name)
            if reason:
                yield reason
                return


def _member(path: str, name: str) -> str | None:
    """Returns what is wrong with the attribute ``path.name``, or None."""
    if path in NAMESPACES:
        fine = name in NAMESPACES[path] or f"{path}.{name}" in NAMESPACES
        return None if fine else f"uses {path}.{name}, which no kernel needs"
    if _is_dunder(name):
        return None if name == "__name__" else f"touches `{name}`"
    if path == SELF:
        return f"touches `{name}`" if name in _inside_python() else None
    if path.startswith(f"{SELF}."):
        return f"touches `{name}`" if _is_guarded(name, private=ITEM in path) else None
    if path in (UNKNOWN, OWN_CLASS):
        return f"touches `{name}`" if _is_guarded(name) else None
    holder, member = path, ""
    while holder and holder not in NAMESPACES:
        holder, _, member = holder.rpartition(".")
    if not holder or member not in NAMESPACES[holder]:
        return None
    return None if name in MEMBERS or name in OTHER_MEMBERS else f"touches `{name}` of {path}"


def _changed_attribute(node: ast.Attribute, scope: LexicalScope) -> Iterator[str]:
    """Yields what is wrong with ``x.name = …``.

    Only an autograd function's ``ctx`` and a constructor's ``self`` may be assigned to, in the module's own classes.
    """
    base = node.value
    if isinstance(base, ast.Name) and not _is_dunder(node.attr):
        for holder in scope.holders(base.id):
            function = holder.node
            own = holder.parent is not None and holder.parent.kind == "class"
            if own and isinstance(function, ast.FunctionDef) and function.args.args[:1]:
                first = function.args.args[0].arg == base.id and len(holder.bindings[base.id]) == 1
                gradients = function.name in WITH_CONTEXT and _derives_from_function(holder.parent)
                if first and (function.name == "__init__" or gradients):
                    return
    if isinstance(base, ast.Name) and base.id == SELF:
        yield f"changes `self.{node.attr}`: a kernel keeps no state"
    else:
        yield f"changes the attribute `{node.attr}` of another object"


def _derives_from_function(scope: LexicalScope | None) -> bool:
    if scope is None or not isinstance(scope.node, ast.ClassDef) or scope.parent is None:
        return False
    bases = [paths(base, scope.parent) for base in scope.node.bases]
    return bases == [frozenset(["torch.autograd.Function"])]


def _class(node: ast.ClassDef, scope: LexicalScope) -> Iterator[str]:
    if node.keywords:
        yield "gives a class arguments of a metaclass"
    for base in node.bases:
        builtin = isinstance(base, ast.Name) and base.id in BASES and not scope.holders(base.id)
        if not builtin and not paths(base, scope) <= BASES | {OWN_CLASS}:
            yield f"derives a class from {ast.unparse(base)}"
    enumeration = any(paths(base, scope) & ENUMERATIONS for base in node.bases)
    if enumeration and (len(node.bases) > 1 or not _is_plain_enumeration(node.body)):
        yield f"may keep state between calls in `{node.name}`: an enumeration has constants and methods only"


def _is_plain_enumeration(body: list[ast.stmt]) -> bool:
    """Whether a class's body gives an enumeration members, so that nothing derives from it, and adds no state to them.

    Names with an underscore are Python's own hooks: ``__init__`` runs for every member when the class is made.
    """
    members = 0
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                members += isinstance(value, ast.Constant)
            case ast.FunctionDef(name=name):
                pass
            case ast.Expr(value=ast.Constant()):
                continue
            case _:
                return False
        if name.startswith("_"):
            return False
    return members > 0


def _is_dunder(name: str) -> bool:
    return name.startswith("__")


def _is_guarded(name: str, private: bool = True) -> bool:
    """Whether an attribute is refused on an object of unknown type."""
    if name in MEMBERS or name in OTHER_MEMBERS:
        return False
    return name in _guarded() or _is_dunder(name) or (private and name.startswith("_"))


@cache
def _inside_python() -> frozenset[str]:
    """Returns attributes by which Python's own objects lead to code, globals, callers and modules."""
    return frozenset({"obj", *(name for cls in _INSIDE_PYTHON for name in dir(cls) if not _is_dunder(name))})


@cache
def _guarded() -> frozenset[str]:
    """Returns all attributes of tensors, layers, Triton's functions and Python's internals.

    Those that are not among the allowed members are refused on any object. A name that is not in here is
    an attribute of the target.
    """
    return _inside_python() | INSIDE_TRITON | INSIDE_TORCH | _inside_installed_torch()


def _inside_installed_torch() -> set[str]:
    """What tensors and layers have in the installed torch; nothing without one, as in the job that suggests."""
    try:
        from torch import Tensor, nn
    except ImportError:
        return set()
    return {name for cls in (Tensor, nn.Linear, nn.Conv2d, nn.Parameter) for name in dir(cls)}


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _is_plain_template(node: ast.expr) -> bool:
    """Whether a string literal's fields name whole arguments and not attributes of them."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    try:
        fields = list(string.Formatter().parse(node.value))
    except ValueError:
        return False
    return all(re.fullmatch(r"\w*", name or "") and "{" not in (spec or "") for _, name, spec, _ in fields)


_REFUSED_BUILTINS = frozenset(dir(builtins)) - BUILTINS - {"None", "True", "False", "Ellipsis", *DUNDERS}

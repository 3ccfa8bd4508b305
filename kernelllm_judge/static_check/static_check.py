"""The static check: refuses a kernel module by its source, before any of it runs.

It is the first line of defence and not the last: what it accepts still runs in an isolated worker and is
compared with the original.
"""

from __future__ import annotations

import ast
import builtins
import re
import tokenize
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass

from kernelllm_judge.core.characters import in_names, in_source
from kernelllm_judge.core.program import parse
from kernelllm_judge.static_check.addresses import made_up_addresses
from kernelllm_judge.static_check.allowed import BUILTINS, DUNDERS, ENUMERATIONS, NAMESPACES
from kernelllm_judge.static_check.attributes import attribute, class_definition, is_dunder, is_guarded
from kernelllm_judge.static_check.scopes import ScopedNode, TooManyAliases, paths, scoped_nodes

LONGEST_SOURCE = 1 << 20
"""Most characters of a kernel module, to bound the time of the check."""

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
        if found := in_source(source):
            return [Violation(*found)]
        violations = [Violation(line, reason) for line, reason in in_names(source)]
        violations += _read(Simplified(tree).visit(tree))
    except TooManyAliases as error:
        return [Violation(1, f"has names that cannot be resolved: {error}")]
    except (SyntaxError, tokenize.TokenError, ValueError, RecursionError, MemoryError) as error:
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


def _read(tree: ast.Module) -> list[Violation]:
    nodes = scoped_nodes(tree)
    roots = module_positions(nodes)
    bases = {id(base) for node, _ in nodes if isinstance(node, ast.ClassDef) for base in node.bases}
    asked_whether_main = {
        id(node.left)
        for node, _ in nodes
        if isinstance(node, ast.Compare)
        and [ast.unparse(each) for each in node.comparators] == ["'__main__'"]
    }
    violations = []
    for scoped in nodes:
        line = getattr(scoped.node, "lineno", 1)
        reasons = [
            *_node(scoped, asked_whether_main),
            *module_as_value(scoped, roots),
            *enumeration_as_value(scoped, bases),
            *pytest_name(scoped.node),
        ]
        violations += [Violation(line, reason) for reason in reasons]
    return violations + [Violation(line, reason) for line, reason in made_up_addresses(nodes)]


def _node(scoped: ScopedNode, asked_whether_main: Collection[int]) -> Iterator[str]:
    """Yields what is wrong with one node; ``asked_whether_main`` are the ids of the names in ``__name__ == "__main__"``."""
    node, scope = scoped.node, scoped.scope
    match node:
        case ast.Import(names=names):
            yield from (f"imports {alias.name}" for alias in names if alias.name not in NAMESPACES)
        case ast.ImportFrom():
            yield from import_from(node)
        case ast.Attribute():
            yield from attribute(node, scope)
        case ast.Name(id=name):
            if name == "__name__" and isinstance(node.ctx, ast.Load) and id(node) not in asked_whether_main:
                yield "reads the module's name, which is another one where it is judged"
            builtin = name in _REFUSED_BUILTINS and isinstance(node.ctx, ast.Load)
            if (is_dunder(name) and name not in DUNDERS) or (builtin and not scope.certain(name)):
                yield f"uses `{name}`"
        case ast.FunctionDef(name=name) | ast.arg(arg=name) | ast.alias(asname=str(name)):
            if is_dunder(name) and name not in DUNDERS:
                yield f"defines `{name}`"
        case ast.ClassDef():
            yield from class_definition(node, scope)
        case ast.Global() | ast.Nonlocal():
            yield "keeps state in a global variable"
        case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
            yield "runs code asynchronously"
        case ast.MatchClass(kwd_attrs=names):
            yield from (f"touches `{name}`" for name in names if is_guarded(name))


_REFUSED_BUILTINS = frozenset(dir(builtins)) - BUILTINS - {"None", "True", "False", "Ellipsis", *DUNDERS}


class Simplified(ast.NodeTransformer):
    """Rewrites what is harmless as a whole and refused in parts, for the check only.

    ``getattr(torch.cuda.get_device_properties(…), "name", default)`` becomes an attribute: kernels ask so for what an older
    torch does not know. Of other objects, attributes are not got by name. ``config.kwargs["BLOCK"]`` becomes
    ``config["BLOCK"]``, and ``config.kwargs.get(…)`` likewise: the numbers of a configuration of Triton's may be read.
    ``x.storage_offset()`` becomes ``x.numel()`` among the arguments of ``as_strided``, where it belongs.
    """

    def __init__(self, tree: ast.Module) -> None:
        """Finds out whether ``getattr`` is the builtin in ``tree``."""
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
            case ast.Call(func=ast.Attribute(attr="as_strided"), args=args):
                for each in (inner for given in args for inner in ast.walk(given)):
                    if isinstance(each, ast.Attribute) and each.attr == "storage_offset":
                        each.attr = "numel"
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=config, attr="kwargs"), attr="get") as read
            ):
                read.value = config
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Leaves ``kwargs`` out where it is read."""
        self.generic_visit(node)
        match node:
            case ast.Subscript(value=ast.Attribute(value=config, attr="kwargs"), ctx=ast.Load()):
                node.value = config
        return node


_READ_BY_PYTEST = ("collect_ignore", "collect_ignore_glob")


def pytest_name(node: ast.AST) -> Iterator[str]:
    """Yields a reason if a node binds a name that pytest looks for in a module."""
    match node:
        case (
            ast.FunctionDef(name=name)
            | ast.ClassDef(name=name)
            | ast.alias(asname=str(name))
            | ast.Name(id=name, ctx=ast.Store())
        ):
            if name.startswith("pytest_") or name in _READ_BY_PYTEST:
                yield f"defines `{name}`, which pytest would use"


def import_from(node: ast.ImportFrom) -> Iterator[str]:
    """Yields what is wrong with the names that are imported from a module."""
    allowed = NAMESPACES.get(node.module or "") if not node.level else None
    for alias in node.names:
        path = f"{node.module}.{alias.name}"
        if allowed is None or alias.name == "*":
            yield f"imports from {'.' * node.level}{node.module or ''}" + (" *" if alias.name == "*" else "")
        elif alias.name not in allowed and path not in NAMESPACES:
            yield f"imports {path}"


def module_positions(nodes: list[ScopedNode]) -> set[int]:
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


def module_as_value(scoped: ScopedNode, roots: set[int]) -> Iterator[str]:
    """Yields a reason if a module is used other than before a dot; ``roots`` comes from ``module_positions``."""
    for path in _names_read(scoped, NAMESPACES.keys(), roots):
        yield f"passes the module `{path}` around"


def enumeration_as_value(scoped: ScopedNode, bases: set[int]) -> Iterator[str]:
    """Yields a reason if ``enum.Enum`` is used other than as a base, such as to make a class in a call."""
    for path in _names_read(scoped, ENUMERATIONS, bases):
        yield f"uses {path} other than as a base, which may keep state between calls"


def _names_read(scoped: ScopedNode, names: Set[str], elsewhere: set[int]) -> list[str]:
    """Returns which of these dotted names a node reads, unless its id is one of ``elsewhere``."""
    node = scoped.node
    if not isinstance(node, ast.Name | ast.Attribute) or id(node) in elsewhere:
        return []
    return sorted(paths(node, scoped.scope) & names) if isinstance(node.ctx, ast.Load) else []

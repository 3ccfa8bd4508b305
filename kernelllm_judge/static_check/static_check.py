"""The static check: refuses a kernel module by its source, before any of it runs.

It is the first line of defence and not the last: what it accepts still runs in an isolated worker and is
compared with the original.
"""

from __future__ import annotations

import ast
import builtins
import re
import tokenize
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kernelllm_judge.core.characters import in_names, in_source
from kernelllm_judge.core.program import parse
from kernelllm_judge.static_check.addresses import made_up_addresses
from kernelllm_judge.static_check.allowed import BUILTINS, DUNDERS, NAMESPACES
from kernelllm_judge.static_check.attributes import attribute, is_dunder, is_guarded
from kernelllm_judge.static_check.classes import class_definition
from kernelllm_judge.static_check.hooks import pytest_name
from kernelllm_judge.static_check.modules import (
    enumeration_as_value,
    import_from,
    module_as_value,
    module_positions,
)
from kernelllm_judge.static_check.scopes import ScopedNode, TooManyAliases, scoped_nodes
from kernelllm_judge.static_check.simplified import Simplified
from kernelllm_judge.static_check.state import find_kept_state

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
    more = [*find_kept_state(nodes), *made_up_addresses(nodes)]
    return violations + [Violation(line, reason) for line, reason in more]


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

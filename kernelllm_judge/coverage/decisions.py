"""Finds the decisions in a kernel module's Python code, and has their outcomes recorded.

A decision is whatever makes one call do something that another does not: a condition, a truth value that is passed on, the
choice of ``min`` and ``max``, an index into a table of constants, an exception that is caught, a ``case``. Triton functions
are left out: what they decide is decided on the device. Standard library only, because the worker needs it, too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any, Literal

Outcome = bool | int | str
Kind = Literal["condition", "value", "choice", "index", "handler"]

RECORD = "__kernelllm_decided__"
"""The name by which instrumented code reports an outcome."""

JIT = frozenset({"jit", "autotune", "heuristics"})
"""Decorators of Triton functions."""

FENCES = {
    "_judged_only": '''
def _judged_only(value, *outcomes):
    """Returns an index or a truth value that was judged with these outcomes; where it is another, the original runs."""
    if value not in outcomes:
        raise NotImplementedError("outside the verified domain")
    return value
''',
    "_judged_if": '''
def _judged_if(value, *outcomes):
    """Returns a condition that was judged with these outcomes; where it falls in another way, the original runs."""
    if bool(value) not in outcomes:
        raise NotImplementedError("outside the verified domain")
    return value
''',
    "_judged_choice": '''
def _judged_choice(choices, function, *values):
    """Returns the min or max of values, of which it was judged with these choices; else the original runs."""
    chosen = function(*values)
    if not any(values[choice] == chosen for choice in choices):
        raise NotImplementedError("outside the verified domain")
    return chosen
''',
}
"""What a fenced kernel module contains, byte for byte; what they decide themselves is no decision of the kernel's."""


@dataclass(frozen=True)
class Decision:
    """One decision in a source."""

    number: int
    """Its place among all decisions of the source."""
    kind: Kind
    line: int
    text: str
    """The expression, as it stands in the source."""
    outcomes: tuple[Outcome, ...]
    """All that it can have."""

    def describe(self, missing: Set[Outcome]) -> str:
        """Returns what was never seen: ``line 14: `n == 21` was never true``."""
        if self.kind == "handler":
            return f"line {self.line}: no probe reached `{self.text}`"
        if self.kind in ("condition", "value"):
            never = " or ".join(str(outcome).lower() for outcome in sorted(missing, key=bool))
            return f"line {self.line}: `{self.text}` was never {never}"
        if self.kind == "choice":
            chosen = " or ".join(f"argument {int(outcome) + 1}" for outcome in sorted(missing, key=int))
            return f"line {self.line}: `{self.text}` never chose {chosen}"
        entries = ", ".join(map(repr, sorted(missing, key=repr)[:3]))
        return f"line {self.line}: `{self.text}` never took entry {entries}"


def find_decisions(source: str) -> list[Decision]:
    """Returns all decisions of a source, in a fixed order."""
    found = []
    for number, (node, kind, outcomes) in enumerate(decisions_in(ast.parse(source))):
        shown = node.pattern if isinstance(node, ast.match_case) else node
        text = " ".join((ast.get_source_segment(source, shown) or "").split())
        if isinstance(node, ast.ExceptHandler):
            text = text.partition(":")[0]
        found.append(Decision(number, kind, shown.lineno, text[:80], outcomes))
    return found


def instrumented(source: str) -> ast.Module:
    """Returns the module with every decision reported to ``RECORD``, a function of its number and value that returns the value."""
    tree = ast.parse(source)
    places = {
        child: (node, name, index)
        for node in ast.walk(tree)
        for name, value in ast.iter_fields(node)
        for index, child in enumerate(value if isinstance(value, list) else [value])
        if isinstance(child, ast.AST)
    }
    found = list(enumerate(decisions_in(tree)))
    # What moves its parts comes last: their places are known by now.
    for number, (node, kind, _) in sorted(found, key=lambda each: each[1][1] in ("index", "choice")):
        if isinstance(node, ast.ExceptHandler | ast.match_case):
            first = node.body[0]
            node.body.insert(0, _placed(ast.Expr(_record(number, ast.Constant(True), kind, first)), first))
        elif kind == "index":
            node.slice = _record(number, node.slice, kind, node)
        elif kind == "choice":
            values = _placed(ast.Tuple([node.func, *node.args], ast.Load()), node)
            node.func, node.args = _placed(ast.Name(RECORD, ast.Load()), node), []
            node.args = [*_record(number, values, kind, node).args]
        else:
            parent, name, index = places[node]
            into = getattr(parent, name)
            wrapped = _record(number, node, kind, node)
            if isinstance(into, list):
                into[index] = wrapped
            else:
                setattr(parent, name, wrapped)
    return tree


def recorder(
    into: set[tuple[int, Outcome, bool]], in_backward: Callable[[], bool] = lambda: False
) -> Callable[[int, str, Any], Any]:
    """Returns the function for ``RECORD``, which adds number, outcome, and whether in a backward pass to a set."""

    def add(number: int, outcome: Outcome) -> None:
        into.add((number, outcome, in_backward()))

    def record(number: int, kind: str, value: Any) -> Any:
        if kind == "choice":
            function, *arguments = value
            chosen = function(*arguments)
            if function in (min, max):  # and nothing of the module's own by that name
                same = [i for i, each in enumerate(arguments) if each is chosen or _equal(each, chosen)]
                add(number, same[0])
            return chosen
        if kind == "condition":
            add(number, bool(value))
        elif kind == "handler":
            add(number, True)
        elif kind == "index":
            if isinstance(value, bool | int | str):
                add(number, value)
        elif value is True or value is False:
            add(number, value)
        return value

    return record


def _equal(first: Any, second: Any) -> bool:
    return isinstance(first, int | float) and bool(first == second)


# ---------------------------------------------------------------------- where decisions are

Found = tuple[Any, Kind, tuple[Outcome, ...]]
_BOTH: tuple[Outcome, ...] = (False, True)


def decisions_in(tree: ast.Module) -> Iterator[Found]:
    """Yields every decision: conditions before values, so that what is both is a condition."""
    tables = {
        target.id: keys
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and (keys := _keys(node.value))
    }
    host = list(_host(tree))
    conditions: dict[ast.expr, None] = {}
    for node in host:
        match node:
            case ast.If() | ast.While() | ast.IfExp() if not _only_raises(node):
                conditions[node.test] = None
            case ast.comprehension():
                conditions |= dict.fromkeys(node.ifs)
            case ast.BoolOp():
                conditions |= dict.fromkeys(node.values)
            case ast.UnaryOp(op=ast.Not()):
                conditions[node.operand] = None
            case ast.match_case(guard=ast.expr() as guard):
                conditions[guard] = None
    for node in host:
        if isinstance(node, ast.expr) and node in conditions and not isinstance(node, ast.Constant):
            yield node, "condition", _BOTH
        match node:
            case ast.Compare() if node not in conditions:
                yield node, "value", _BOTH
            case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _, *_], keywords=[]):
                yield node, "choice", tuple(range(len(node.args)))
            case ast.Call() | ast.Attribute(ctx=ast.Load()) if node not in conditions:
                yield node, "value", _BOTH
            case ast.Subscript(ctx=ast.Load()) if not isinstance(node.slice, ast.Constant):
                if keys := tables.get(
                    node.value.id if isinstance(node.value, ast.Name) else "", _keys(node.value)
                ):
                    yield node, "index", keys
            case ast.ExceptHandler() | ast.match_case() if not isinstance(node.body[0], ast.Raise):
                yield node, "handler", (True,)


def _host(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields the nodes of code that runs in Python, but for annotations and fences."""
    fences = fences_of(tree)
    waiting: list[ast.AST] = list(reversed(tree.body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name in fences:
                continue
            waiting += reversed(node.decorator_list)
            if not is_device(node):
                waiting += reversed([*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body])
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in fences:
            # What is fenced falls in one way only; what it is made of may decide more.
            waiting += reversed([*ast.iter_child_nodes(node.args[0]), *node.args[1:]])
            continue
        yield node
        children = [
            child
            for name, value in ast.iter_fields(node)
            if name != "annotation" and not (name == "test" and _only_raises(node))
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST)
        ]
        waiting += reversed(children)


def _only_raises(node: Any) -> bool:
    """Whether a test decides only about an exception, at which the original runs; and names nothing that is read later."""
    raises = isinstance(node, ast.Assert) or (
        isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise) and not node.orelse
    )
    return raises and not any(isinstance(each, ast.NamedExpr) for each in ast.walk(node.test))


def fences_of(tree: ast.Module) -> frozenset[str]:
    """Returns the names of the fences in a module: functions that are exactly ours, and bound nowhere else."""
    bound = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    bound += [
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    bound += [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    own = [ast.dump(node) for node in tree.body if isinstance(node, ast.FunctionDef)]
    return frozenset(
        name
        for name, text in FENCES.items()
        if bound.count(name) == 1 and ast.dump(ast.parse(text).body[0]) in own
    )


def is_device(function: ast.AST) -> bool:
    """Whether a node is a function that Triton compiles."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    for decorator in function.decorator_list:
        named = decorator.func if isinstance(decorator, ast.Call) else decorator
        if (named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")) in JIT:
            return True
    return False


def _keys(node: ast.expr) -> tuple[Outcome, ...]:
    match node:
        case ast.List() | ast.Tuple() if node.elts:
            return tuple(range(len(node.elts)))
        case ast.Constant(value=str() | bytes() as text) if text:
            return tuple(range(len(text)))
        case ast.Dict() if node.keys and all(isinstance(key, ast.Constant) for key in node.keys):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            return tuple(key for key in keys if isinstance(key, bool | int | str))
    return ()


# ---------------------------------------------------------------------- how they are rewritten


def _record(number: int, value: ast.expr, kind: str, place: Any) -> ast.Call:
    arguments = [ast.Constant(number), ast.Constant(kind)]
    call = ast.Call(ast.Name(RECORD, ast.Load()), [_placed(each, place) for each in arguments], [])
    _placed(call.func, place)
    if not hasattr(value, "lineno"):
        _placed(value, place)
    call.args.append(value)
    _placed(call, place)
    return call


def _placed(node: Any, place: Any) -> Any:
    """Gives a node that is new the place of another."""
    return ast.copy_location(node, getattr(place, "pattern", place))

"""Finds which objects running a piece of code may change, by the names through which it reaches them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kernelllm_runtime.source.syntax import COMPREHENSIONS, Chain, assigned_names, chain_of, parameters, words

Ignore = Callable[[ast.expr], bool]
"""Whether a call or decorator changes nothing, as that of the marker."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict, *COMPREHENSIONS)
_HARMLESS = words(
    "abs all any bool callable complex dict enumerate float frozenset getattr hasattr hash id int isinstance issubclass "
    "len list max min print range repr reversed round set sorted str sum super tuple type zip TypeVar"
)
"""Functions that change no argument; their result may hold it."""
_CONTAINER = words("add append appendleft extend insert setdefault update")
"""Methods of containers, which change no argument."""
_EVERYTHING = frozenset(("exec", "eval", "globals", "locals", "vars"))


@dataclass(frozen=True)
class Touch:
    """An object that may be changed: what ``chain`` names."""

    chain: Chain
    deep: bool
    """Whether objects that it holds may be changed as well."""
    given: bool
    """Whether it is passed on or called, which changes no number and no text."""
    by: str = ""
    """The name of the function that it is passed to."""


@dataclass
class Effects:
    """What running code may change."""

    touched: set[Touch] = field(default_factory=set)
    called: set[Chain] = field(default_factory=set)
    """Functions and classes that are called."""
    extended: set[Chain] = field(default_factory=set)
    """Classes of which a subclass is defined."""
    everything: bool = False
    """Whether any name of the module may be changed."""


def effects(nodes: Iterable[ast.AST], ignore: Ignore) -> Effects:
    """Returns what running statements or expressions may change; the bodies of functions in them do not run."""
    finder = _Finder(ignore)
    for node in nodes:
        finder.visit(node)
    return finder.found


def effects_of_call(function: ast.AST, ignore: Ignore) -> Effects:
    """Returns what calling a function may change other than what it is given, or any method of a class."""
    finder = _Finder(ignore)
    own: set[str] = set()
    shared = {n for g in ast.walk(function) if isinstance(g, ast.Global) for n in g.names}
    sources: defaultdict[str, set[tuple[Chain, bool]]] = defaultdict(set)
    for node in ast.walk(function):
        if isinstance(node, _FUNCTIONS):
            own |= {parameter.arg for parameter in parameters(node.args, variadic=True)}
            for part in node.body if isinstance(node.body, list) else [node.body]:
                own.update(assigned_names(part))
                finder.visit(part)
        for name, chain, held in aliases(node):
            sources[name].add((chain, held))
    found, own = finder.found, own - shared
    found.touched |= {Touch((name,), False, False) for name in shared}
    found.touched = _closed(found.touched, sources)
    found.touched = {touch for touch in found.touched if touch.chain[0] not in own}
    found.called = {chain for chain in found.called if chain[0] not in own}
    return found


def _closed(touched: set[Touch], sources: defaultdict[str, set[tuple[Chain, bool]]]) -> set[Touch]:
    """Adds what the touched names are other names of."""
    queue, found = list(touched), set(touched)
    while queue:
        touch = queue.pop()
        for chain, held in sources.get(touch.chain[0], ()):
            if touch.deep or not held:
                further = Touch(chain, touch.deep, touch.given)
                if further not in found:
                    found.add(further)
                    queue.append(further)
    return found


def aliases(node: ast.AST) -> Iterator[tuple[str, Chain, bool]]:
    """Yields what one statement or expression makes another name of: the new name, the old one, and whether it only holds it."""
    pairs: list[tuple[ast.AST, ast.AST]] = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        pairs = [(node.target, ast.Tuple([node.iter], ast.Load()))]
    elif isinstance(node, ast.With | ast.AsyncWith):
        pairs = [(item.optional_vars, item.context_expr) for item in node.items if item.optional_vars]
    elif isinstance(node, ast.Match):
        pairs = [(case.pattern, node.subject) for case in node.cases]
    for target, value in pairs:
        whole = isinstance(target, ast.Name) and not isinstance(
            node, ast.For | ast.AsyncFor | ast.comprehension
        )
        held = whole and isinstance(value, (*_DISPLAYS, ast.Call)) and not _may_return(value)
        for name in assigned_names(target):
            for chain in sorted(_mentioned(value)):
                yield name, chain, held


def _may_return(value: ast.AST) -> bool:
    """Whether a call may give back one of its arguments itself."""
    return isinstance(value, ast.Call) and not (
        isinstance(value.func, ast.Name) and value.func.id in _HARMLESS
    )


def _mentioned(node: ast.AST) -> set[Chain]:
    """Returns the names in an expression that may stand for an object in its value, those of called functions left out."""
    if (chain := chain_of(node)) is not None:
        return {chain}
    if isinstance(node, ast.Compare | ast.Constant | ast.JoinedStr | ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    inner = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        inner = [*node.args, *node.keywords]
        if isinstance(node.func, ast.Attribute):
            inner.append(node.func.value)
        elif not isinstance(node.func, ast.Name):
            inner.append(node.func)
    return {chain for each in inner for chain in _mentioned(each)}


class _Finder(ast.NodeVisitor):
    def __init__(self, ignore: Ignore) -> None:
        self.found = Effects()
        self._ignore = ignore

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._decorated(node)
        for each in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(each)

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # names that NodeVisitor asks for

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._decorated(node)
        self.found.extended |= {chain for base in node.bases if (chain := chain_of(base))}
        self.found.called |= {chain for each in node.keywords if (chain := chain_of(each.value))}
        for each in (*node.bases, *node.keywords, *node.body):
            self.visit(each)

    def _decorated(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            if not self._ignore(decorator):
                if chain := chain_of(decorator):
                    self._called(chain)
                self.visit(decorator)

    def visit_Call(self, node: ast.Call) -> None:
        if self._ignore(node) or self._ignore(node.func):
            return
        chain = chain_of(node.func)
        if chain:
            self._called(chain)
        elif isinstance(node.func, ast.Attribute | ast.Subscript | ast.Call):
            self._touch(_mentioned(node.func))
        harmless = chain is not None and (
            (len(chain) == 1 and chain[0] in _HARMLESS) or (len(chain) > 1 and chain[-1] in _CONTAINER)
        )
        if not harmless:
            by = ".".join(chain or ())
            self._touch({c for each in (*node.args, *node.keywords) for c in _mentioned(each)}, by)
        self.generic_visit(node)

    def _called(self, chain: Chain) -> None:
        self.found.called.add(chain)
        if len(chain) > 1:
            self.found.touched.add(Touch(chain[:-1], chain[-1] not in _CONTAINER, True))

    def _touch(self, chains: Iterable[Chain], by: str = "") -> None:
        self.found.touched |= {Touch(chain, True, True, by) for chain in chains}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._stored(node)
        if chain_of(node) == ("sys", "modules"):
            self.found.everything = True

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._stored(node)

    def _stored(self, node: ast.Attribute | ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            if chain := chain_of(node) or chain_of(node.value):
                self.found.touched.add(Touch(chain, False, False))
            else:
                self.found.touched |= {Touch(chain, True, False) for chain in _mentioned(node.value)}
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.found.touched.add(Touch((node.target.id,), False, False))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Call | ast.Constant | ast.Name | ast.Attribute):
            self._touch(_mentioned(node.value))  # operators may change what they are given
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.found.everything |= node.id in _EVERYTHING

"""Finds which statements of a project, run while it is imported, may change what a name of one of its modules stands for."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernelllm_runtime.source.effects import Effects, Touch, aliases, effects, effects_of_call
from kernelllm_runtime.source.marks import is_marker
from kernelllm_runtime.source.names import Unit
from kernelllm_runtime.source.resolve import WHOLE_MODULE, Module, ProjectSources
from kernelllm_runtime.source.syntax import SCOPES, Chain, Import, imports_inside

Key = tuple[Path, str]
"""A name at the top of a module, or the whole module."""

_SUBCLASS = "__init_subclass__"
_PATCHES = ("setattr", "delattr")


@dataclass(frozen=True)
class _Call:
    """A call of what a name stands for, or of a method of it."""

    called: Key
    method: str
    extends: bool
    """Whether a subclass is defined instead."""


def changes_of(project: ProjectSources) -> Changes:
    """Returns the changes in a project, which are kept as long as its files."""
    kept: Changes = project.notes.setdefault("changes", Changes(project))
    return kept


class Changes:
    """What the statements of a project's modules may change; each module is gone through once."""

    def __init__(self, project: ProjectSources) -> None:
        """``project``: the parsed files."""
        self._project = project
        self._loaded: dict[Path, list[Module]] = {}
        self._imports: dict[Path, list[Module]] = {}
        self._made: dict[Path, dict[Key, list[int]]] = {}
        self._calls: dict[_Call, tuple[set[tuple[Key, Touch]], list[_Call]]] = {}
        self._aliases: dict[Path, Mapping[str, set[tuple[Chain, bool]]]] = {}

    def of(self, module: Module) -> Mapping[Key, Sequence[int]]:
        """Returns the numbers of a module's statements that may change each name, of this module or another."""
        if module.path not in self._made:
            made: dict[Key, list[int]] = defaultdict(list)
            self._made[module.path] = made
            for number, unit in enumerate(module.units):
                for key in sorted(self._changed(module, unit)):
                    made[key].append(number)
        return self._made[module.path]

    def loaded(self, module: Module) -> list[Module]:
        """Returns the project's modules that importing one runs, in the order of their imports, and itself as the last."""
        if module.path not in self._loaded:
            self._loaded[module.path] = self._load(module)
        return self._loaded[module.path]

    def _load(self, module: Module) -> list[Module]:
        queue = [(module, iter(self._imported(module)))]
        seen, found = {module.path}, list[Module]()
        while queue:  # not recursive: chains of imports may be long
            current, rest = queue[-1]
            following = next(rest, None)
            if following is None:
                queue.pop()
                found.append(current)
            elif following.path not in seen:
                seen.add(following.path)
                queue.append((following, iter(self._imported(following))))
        return found

    def _imported(self, module: Module) -> Sequence[Module]:
        """The modules of the project that a module imports anywhere, and its package's."""
        if module.path in self._imports:
            return self._imports[module.path]
        named: list[tuple[int, Chain]] = [(1 + (module.path.name == "__init__.py"), ())]
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                named += [(0, tuple(alias.name.split("."))) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = tuple(node.module.split(".")) if node.module else ()
                named += [(node.level, (*base, *({alias.name} - {WHOLE_MODULE}))) for alias in node.names]
        found: dict[Path, Module] = {}
        for level, parts in dict.fromkeys(named):
            for taken in range(min(len(parts), 1), len(parts) + 1):
                if file := self._project.find(module, level, parts[:taken]):
                    found.setdefault(file.path, file)
        self._imports[module.path] = list(found.values())
        return self._imports[module.path]

    def _changed(self, module: Module, unit: Unit) -> set[Key]:
        found = effects(unit.parts, partial(is_marker, self._project, module))
        keys = self._reached(module, found, {})
        queue, seen = list(keys), set(keys)
        while queue:  # what a changed name is another name of
            (path, name), touch = queue.pop()
            owner = self._project.parse(path)
            for chain, held in self._other_names(owner).get(name, ()):
                if touch.deep or not held:
                    for further in self._keys(owner, Touch(chain, touch.deep, touch.given), {}):
                        if further not in seen:
                            seen.add(further)
                            queue.append(further)
        return {key for key, touch in seen if not (touch.given and self._is_constant(key))}

    def _reached(
        self, module: Module, found: Effects, local: Mapping[str, Sequence[Import]]
    ) -> set[tuple[Key, Touch]]:
        """What running code may change, in it and in all that it calls."""
        keys, queue = self._directly(module, found, local)
        seen = set(queue)
        while queue:
            call = queue.pop()
            if call not in self._calls:
                self._calls[call] = self._by_call(call)
            further, calls = self._calls[call]
            keys = keys | further
            queue += [each for each in calls if each not in seen]
            seen.update(calls)
        return keys

    def _directly(
        self, module: Module, found: Effects, local: Mapping[str, Sequence[Import]]
    ) -> tuple[set[tuple[Key, Touch]], list[_Call]]:
        keys = {key for touch in found.touched for key in self._keys(module, touch, local)}
        if found.everything:
            keys.add(((module.path, WHOLE_MODULE), Touch((), True, False)))
        calls = [
            _Call((origin.module.path, origin.name), chain[-1] if len(chain) > 1 else "", only)
            for chains, only in ((found.called, False), (found.extended, True))
            for chain in sorted(chains)
            for origin in self._project.resolve(module, chain, local)
            if origin.module is not None and origin.name != WHOLE_MODULE
        ]
        return keys, calls

    def _keys(
        self, module: Module, touch: Touch, local: Mapping[str, Sequence[Import]]
    ) -> Iterator[tuple[Key, Touch]]:
        """What a touched name is: names of modules of the project, with which the touch goes on."""
        for origin in self._project.resolve(module, touch.chain, local):
            if origin.module is not None and not (
                touch.given and origin.name == WHOLE_MODULE and touch.by not in _PATCHES
            ):
                yield (origin.module.path, origin.name), Touch((), touch.deep, touch.given)
            elif origin.module is None and touch.chain[0] in module.names and touch.by in _PATCHES:
                yield (module.path, touch.chain[0]), Touch((), False, False)

    def _by_call(self, call: _Call) -> tuple[set[tuple[Key, Touch]], list[_Call]]:
        """What a call itself may change, and what it calls."""
        module = self._project.parse(call.called[0])
        ignore = partial(is_marker, self._project, module)
        keys: set[tuple[Key, Touch]] = set()
        calls: list[_Call] = []
        for node in module.names[call.called[1]].nodes:
            found = [(effects_of_call(part, ignore), part) for part in _run(node, call)]
            if isinstance(node, ast.ClassDef):
                outer = effects([node], ignore)
                above = Effects(called=outer.called, extended=outer.extended)
                found.append((above if call.extends else Effects(called=outer.extended), ast.Pass()))
            elif not isinstance(node, SCOPES) and not call.extends:
                # An instance, a partial function or another name: what made it may be what is called.
                made = effects([node], ignore)
                made.called |= {chain for _, chain, _ in aliases(node)}
                found.append((made, node))
            for each, part in found:
                more, further = self._directly(module, each, imports_inside(part))
                keys |= more
                calls += further
        return keys, calls

    def _other_names(self, module: Module) -> Mapping[str, set[tuple[Chain, bool]]]:
        if module.path not in self._aliases:
            found: defaultdict[str, set[tuple[Chain, bool]]] = defaultdict(set)
            for unit in module.units:
                for node in (unit.statement, *(n for part in unit.parts for n in _outside_functions(part))):
                    for name, chain, held in aliases(node):
                        found[name].add((chain, held))
            self._aliases[module.path] = found
        return self._aliases[module.path]

    def _is_constant(self, key: Key) -> bool:
        """Whether a name is only ever given numbers, texts and tuples of them, which nothing that is passed them changes."""
        bindings = self._project.parse(key[0]).names.get(key[1])
        return bindings is not None and not bindings.imports and all(map(_is_literal, bindings.nodes))


def _run(node: ast.AST, call: _Call) -> Iterable[ast.AST]:
    """Returns the functions of a definition that run when it is called."""
    if not isinstance(node, ast.ClassDef):
        return (node,) if isinstance(node, SCOPES) and not call.extends else ()
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    if call.extends:
        return [n for n in methods if n.name == _SUBCLASS]
    return [n for n in methods if n.name == call.method] or [node]


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _outside_functions(child)


def _is_literal(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) for target in node.targets) and _is_literal(node.value)
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name) and (node.value is None or _is_literal(node.value))
    if isinstance(node, ast.UnaryOp):
        return _is_literal(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_literal(node.left) and _is_literal(node.right)
    if isinstance(node, ast.Tuple):
        return all(map(_is_literal, node.elts))
    return isinstance(node, ast.Constant)

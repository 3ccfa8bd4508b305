"""Finds which statements of a project, run while it is imported, may change what a name of one of its modules stands for."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from kernelllm_runtime.source.effects import Effects, Touch, aliases, effects, effects_of_call
from kernelllm_runtime.source.marks import is_marker
from kernelllm_runtime.source.names import Unit
from kernelllm_runtime.source.resolve import WHOLE_MODULE, Module, Origin, ProjectSources
from kernelllm_runtime.source.syntax import SCOPES, Chain, Import, imports_inside

Key = tuple[Path, str]
"""A name at the top of a module, or the whole module."""

_SUBCLASS = "__init_subclass__"
_PATCHES = ("setattr", "delattr")


class Changes:
    """What the statements of a project's modules may change; each module is gone through once."""

    def __init__(self, project: ProjectSources) -> None:
        """``project``: the parsed files."""
        self._project = project
        self._made: dict[Path, dict[Key, list[int]]] = {}
        self._calls: dict[tuple[Path, str, Chain, bool], frozenset[tuple[Key, Touch]]] = {}
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
        found: dict[Path, Module | None] = {}
        self._load(module, found)
        return [each for each in found.values() if each is not None]

    def _load(self, module: Module, found: dict[Path, Module | None]) -> None:
        queue: list[tuple[Module, Iterator[Module]]] = [(module, self._imported(module))]
        found[module.path] = None
        while queue:  # not recursive: chains of imports may be long
            current, rest = queue[-1]
            following = next(rest, None)
            if following is None:
                queue.pop()
                del found[current.path]  # so that it comes after what it imports
                found[current.path] = current
            elif following.path not in found:
                found[following.path] = None
                queue.append((following, self._imported(following)))

    def _imported(self, module: Module) -> Iterator[Module]:
        if (above := self._project.find(module, 1 + (module.path.name == "__init__.py"), ())) is not None:
            yield above
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            for alias in node.names:
                base = tuple((node.module or "").split(".")) if isinstance(node, ast.ImportFrom) else ()
                base = tuple(part for part in base if part)
                parts = (*base, *(() if alias.name == "*" else alias.name.split(".")))
                level = node.level if isinstance(node, ast.ImportFrom) else 0
                for taken in range(1, len(parts) + 1):
                    if file := self._project.find(module, level, parts[:taken]):
                        yield file

    def _changed(self, module: Module, unit: Unit) -> set[Key]:
        found = effects(unit.parts, partial(is_marker, self._project, module))
        keys = self._reached(module, found, {}, frozenset())
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
        self,
        module: Module,
        found: Effects,
        local: Mapping[str, Sequence[Import]],
        running: frozenset[tuple[Path, str, Chain, bool]],
    ) -> set[tuple[Key, Touch]]:
        keys = {key for touch in found.touched for key in self._keys(module, touch, local)}
        if found.everything:
            keys |= {((module.path, WHOLE_MODULE), Touch((), True, False))}
        for chains, only in ((found.called, False), (found.extended, True)):
            for chain in chains:
                for origin in self._project.resolve(module, chain, local):
                    keys |= self._by_call(origin, chain, only, running)
        return keys

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

    def _by_call(
        self, origin: Origin, chain: Chain, only: bool, running: frozenset[tuple[Path, str, Chain, bool]]
    ) -> frozenset[tuple[Key, Touch]]:
        """What calling a name may change, or defining a subclass of it."""
        if origin.module is None or origin.name == WHOLE_MODULE:
            return frozenset()
        module, method = origin.module, chain[-1:] if len(chain) > 1 else ()
        key = (module.path, origin.name, method, only)
        if key in running:
            return frozenset()
        if key not in self._calls:
            ignore = partial(is_marker, self._project, module)
            found: set[tuple[Key, Touch]] = set()
            for node in module.names[origin.name].nodes:
                for part in _run(node, method, only):
                    local = imports_inside(part)
                    if isinstance(part, SCOPES):
                        inner = effects_of_call(part, ignore)
                    else:  # an instance, a partial function or another name: what made it may be what is called
                        inner = effects([part], ignore)
                        inner.called |= {c for _, c, _ in aliases(part)}
                    found |= self._reached(module, inner, local, running | {key})
                if isinstance(node, ast.ClassDef):
                    outer = effects([node], ignore)
                    above = Effects(called=outer.called, extended=outer.extended)
                    if not only:
                        above = Effects(called=outer.extended)
                    found |= self._reached(module, above, {}, running | {key})
            if running:  # it may be part of a circle, which was not followed to its end
                return frozenset(found)
            self._calls[key] = frozenset(found)
        return self._calls[key]

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


def _run(node: ast.AST, method: Chain, only: bool) -> Iterable[ast.AST]:
    """Yields the parts of a definition that run when it is called, by a method's name if there is one."""
    if not isinstance(node, ast.ClassDef):
        return () if only else (node,)
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    if only:
        return [n for n in methods if n.name == _SUBCLASS]
    return [n for n in methods if n.name in method] or [node]


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

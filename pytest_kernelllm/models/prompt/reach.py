"""Follows a class to everything that it uses and collects it as statements of one module."""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from torch import nn

from kernelllm_judge.core.syntax import chain_of
from kernelllm_runtime.source.names import Bindings
from pytest_kernelllm.models.prompt import origins
from pytest_kernelllm.models.prompt.classes import ClassParts, Member, check_closure, split_class
from pytest_kernelllm.models.prompt.constants import Constants, Found
from pytest_kernelllm.models.prompt.decorators import strip, strip_class
from pytest_kernelllm.models.prompt.errors import NotPortable
from pytest_kernelllm.models.prompt.scopes import FreeName, free_names
from pytest_kernelllm.models.prompt.sources import namespace_of
from pytest_kernelllm.models.prompt.trim import Trimmer, positional
from pytest_kernelllm.models.prompt.units import ImportedSymbol, Symbol, Unit

_EVERYWHERE = ("__class__", "__name__")
"""Names that Python binds itself, in methods or in every module."""

_MOST_UNITS = 80
"""The largest number of statements that are copied for one target."""


class Reach:
    """Follows code from a class and collects ``units``, ``imports`` and ``submodules``."""

    def __init__(
        self, cls: type[nn.Module], passed: Mapping[str, Iterable[str]], constants: Constants
    ) -> None:
        """Follows nothing yet; call ``model``.

        Args:
            cls: the target's class.
            passed: the parameters that will be passed by position, by method (``__init__``, ``forward``).
            constants: copies the constants of the case.
        """
        self._cls, self._passed, self._constants = cls, passed, constants
        self._sources, self._observer = constants.sources, constants.observer
        self._known: dict[object, Symbol] = {}
        self._alive: list[Any] = []  # keeps alive the objects whose ids are in `_known`
        self._computed = False  # whether code reads attributes by computed names
        self._parts: list[tuple[Unit, ClassParts]] = []
        self.units: list[Unit] = []
        self.imports: list[ImportedSymbol] = []
        self.submodules: set[str] = set()
        """Modules that need an ``import a.b.c`` of their own."""
        self.mentioned: set[str] = set()
        """The attributes, and the strings that may name attributes, in all code that is kept."""

    def model(self) -> None:
        """Follows the target's class.

        Raises:
            NotPortable: something that it uses cannot be copied.
        """
        self._class(self._cls)
        self._include_members()

    def add(
        self, name: str, node: ast.FunctionDef, module: Mapping[str, Any], overlay: dict[str, Any]
    ) -> None:
        """Adds a function such as ``get_inputs`` to the module and follows it.

        Raises:
            NotPortable: something that it uses cannot be copied.
        """
        unit = Unit(name, node=node, module=module, overlay=overlay, name=name)
        self.units.append(unit)
        self._follow_whole(unit)
        self._include_members()

    def _follow(self, unit: Unit, node: ast.AST, body: frozenset[str] = frozenset()) -> None:
        for free in free_names(node, body):
            self._resolve(unit, free)
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute):
                self.mentioned.add(part.attr)
            elif isinstance(part, ast.Name):
                self.mentioned.add(part.id)
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                self.mentioned.add(part.value)
            elif isinstance(part, ast.Call) and chain_of(part.func) in (("getattr",), ("hasattr",)):
                self._computed |= len(part.args) > 1 and not isinstance(part.args[1], ast.Constant)
            elif isinstance(part, ast.Global):
                raise NotPortable(
                    f"{unit.preferred} keeps state in the global `{part.names[0]}`; keep it in the module"
                )

    def _resolve(self, unit: Unit, free: FreeName) -> None:
        chain, root = free.chain, free.chain[0]
        holder = None if root in unit.overlay else unit.module
        value = unit.overlay.get(root, unit.module.get(root, origins.MISSING))
        if root in _EVERYWHERE:
            return
        if root in ("__file__", "__path__", "__spec__"):
            raise NotPortable(
                f"{unit.preferred} reads `{root}`, which changes when the code is moved; pass in the value"
            )
        if value is origins.MISSING:
            if hasattr(builtins, root):
                return
            raise NotPortable(
                f"{unit.preferred} reads `{root}`, which its module does not define; define or import it there"
            )
        taken = 1
        while isinstance(value, ModuleType) and not origins.is_importable(value.__name__):
            if taken == len(chain) or not hasattr(value, chain[taken]):
                raise NotPortable(
                    f"{unit.preferred} uses the module `{'.'.join(chain)}` as a value; use its members by name"
                )
            value, holder = getattr(value, chain[taken]), vars(value)
            taken += 1
        found, trail = self._symbol(Found(chain[taken - 1], value, holder))
        node = free.node
        for _ in chain[taken:]:
            assert isinstance(node, ast.Attribute)
            node = node.value
        unit.uses[id(node)] = found, trail
        found.users.append((unit, root if taken == 1 and not trail else None))
        if isinstance(found, Unit):
            (unit.eager if free.eager else unit.needs).append(found)
        elif isinstance(value, ModuleType) and holder is not None:
            plain = self._sources.submodules(holder)
            self.submodules |= {name for n in range(2, len(chain)) if (name := ".".join(chain[:n])) in plain}

    def _symbol(self, found: Found) -> tuple[Symbol, tuple[str, ...]]:
        value = found.value
        if origins.is_ours(value):
            raise NotPortable(
                f"it uses `{found.name}` of pytest_kernelllm; keep that out of the module's own code"
            )
        if isinstance(value, ModuleType):
            return self._imported(value.__name__, None, _usual_name(found)), ()
        if origins.is_definition(value):
            if value not in self._torch_bases() and origins.is_importable(origins.home(value)):
                if (spelled := self._spelled(found)) is not None:
                    return spelled
            elif isinstance(value, type):
                return self._class(value), ()
            elif isinstance(plain := inspect.unwrap(value), FunctionType) and not self._is_made(found, plain):
                return self._function(value, plain), ()
            elif isinstance(value, BuiltinFunctionType):
                raise NotPortable(
                    f"`{found.name}` of {origins.home(value)} is compiled; only PyTorch's own can stay an import"
                )
        return self._constant(found)

    def _is_made(self, found: Found, plain: FunctionType) -> bool:
        """Whether a function is the result of an expression or a decorator and not of a ``def``."""
        if plain.__name__ == "<lambda>":
            return True
        origin = self._constants.origin(found)
        names, _ = self._sources.bindings(origin.holder or {})
        return bool(plain.__code__.co_freevars) and bool(names.get(origin.name, Bindings()).nodes)

    def _spelled(self, found: Found) -> tuple[Symbol, tuple[str, ...]] | None:
        """Imports a value of PyTorch or Python under the name in its module's import, or under its usual name."""
        imported = self._constants.imported(found)
        if imported and origins.is_importable(imported[0]) and not imported[0].startswith("torch."):
            return self._imported(*imported, found.name), ()
        if spelled := origins.spelling(found.value):
            module, usual, name = spelled
            if imported == (module, name):
                return self._imported(module, name, found.name), ()
            return self._imported(module, None, usual), (name,)
        if member := (imported or origins.member_of(found.value)):
            return self._imported(*member, found.name if imported else member[1]), ()
        return None

    def _imported(self, module: str, member: str | None, preferred: str) -> ImportedSymbol:
        key = (module, member)
        if key not in self._known:
            self.imports.append(ImportedSymbol(preferred, module=module, member=member))
            self._known[key] = self.imports[-1]
        symbol = self._known[key]
        assert isinstance(symbol, ImportedSymbol)
        return symbol

    def _unit(self, key: object, unit: Unit) -> Unit:
        self._known[key] = unit
        self.units.append(unit)
        if len(self.units) > _MOST_UNITS:
            raise NotPortable(
                f"it reaches more than {_MOST_UNITS} classes, functions and constants; mark one of the smaller "
                "modules inside it"
            )
        return unit

    def _function(self, value: Any, plain: FunctionType) -> Symbol:
        if (key := id(plain)) in self._known:
            return self._known[key]
        check_closure(plain)
        node = copy.deepcopy(self._sources.function(plain))
        assert isinstance(node, ast.FunctionDef)
        self._alive.append(plain)
        unit = self._unit(key, Unit(node.name, node=node, module=plain.__globals__))
        strip(node, unit.module, drop=value is plain)
        self._follow_whole(unit)
        return unit

    def _constant(self, found: Found) -> tuple[Symbol, tuple[str, ...]]:
        found = self._constants.origin(found)
        if found.module and origins.is_importable(found.module):
            return self._imported(found.module, found.name, found.name), ()
        key = id(found.value) if found.holder is None else (found.module, found.name)
        if key not in self._known:
            self._alive.append(found.value)
            node, overlay = self._constants.statement(found)
            unit = self._unit(key, Unit(found.name, node=node, module=found.holder or {}, overlay=overlay))
            self._follow_whole(unit)
        return self._known[key], ()

    def _class(self, cls: type) -> Symbol:
        if (key := id(cls)) in self._known:
            return self._known[key]
        self._alive.append(cls)
        inlined = [
            base
            for base in cls.__mro__
            if base in self._torch_bases() or not origins.is_importable(base.__module__)
        ]
        parts = split_class(cls, self._sources.class_(cls), inlined)
        is_target = cls is self._cls
        unit = Unit("Model" if is_target else cls.__name__, node=parts.header, module=namespace_of(cls))
        unit.name = "Model" if is_target else ""
        self._unit(key, unit)
        strip_class(parts, unit.module, self._observer.same_without)
        self._parts.append((unit, parts))
        self._follow(unit, parts.header)
        return unit

    def _include_members(self) -> None:
        """Includes the members of classes that are needed, until no more are."""
        while added := [
            (unit, parts, member)
            for unit, parts in self._parts
            for member in parts.members
            if not member.included and (member.implicit or self._computed or member.names & self.mentioned)
        ]:
            for unit, parts, member in added:
                member.included = True
                self._member(unit, parts, member)
        for unit, parts in self._parts:
            assert isinstance(unit.node, ast.ClassDef)
            unit.node.body = [m.node for m in parts.members if m.included and m.node] or [ast.Pass()]

    def _member(self, unit: Unit, parts: ClassParts, member: Member) -> None:
        assert member.node is not None
        if isinstance(member.node, ast.FunctionDef) and parts.cls is self._cls:
            positional(member.node.args, self._passed.get(member.node.name, ()))
        member.node = self._prepare(unit, member.node, plain_class=not issubclass(parts.cls, nn.Module))
        if member.node is not None:
            self._follow(unit, member.node, frozenset(name for m in parts.members for name in m.names))

    def _prepare(self, unit: Unit, node: ast.stmt, plain_class: bool = True) -> ast.stmt | None:
        """Shortens a statement before it is followed."""
        namespace = {**unit.module, **unit.overlay}
        unit.overlay.update(self._constants.entries(node, namespace))
        trimmer = Trimmer(namespace, plain_class)
        trimmed = trimmer.trimmed(node)
        unit.overlay.update(trimmer.overlay)
        return trimmed

    def _follow_whole(self, unit: Unit) -> None:
        unit.node = self._prepare(unit, unit.node) or ast.Pass()
        self._follow(unit, unit.node)

    def _torch_bases(self) -> list[type]:
        """Returns a PyTorch target and its bases, which are copied because the prompt is about them."""
        if not origins.is_importable(self._cls.__module__):
            return []
        return [base for base in self._cls.__mro__ if issubclass(base, nn.Module) and base is not nn.Module]


def _usual_name(found: Found) -> str:
    """Returns the name of a module for which the user's code has no import."""
    return str(found.value.__name__).rpartition(".")[2] if found.holder is None else found.name

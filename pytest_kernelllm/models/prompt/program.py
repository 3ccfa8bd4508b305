"""Collects what a class needs: slices of its own file, and short definitions or signatures of what that imports."""

from __future__ import annotations

import ast
import copy
import importlib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from kernelllm_judge.core.syntax import Import, chain_of
from pytest_kernelllm.models.prompt.files import (
    MISSING,
    File,
    attribute,
    chains,
    is_importable,
    is_ours,
    read_file,
    spelled,
)
from pytest_kernelllm.models.prompt.scopes import free_roots
from pytest_kernelllm.models.prompt.shorten import shortened
from pytest_kernelllm.models.prompt.values import Unwritable, is_plain, signature, write

_MOST_ENTRIES = 8
"""A table of another file with more entries that the code may read is not written."""

_LONGEST_VALUE = 200
"""Characters of a constant of another file; of a longer one the definition is shown."""


class _Clash(Exception):
    """Raised if a name of another file already has another meaning."""


class _TooLong(Exception):
    """Raised if a name of another file brings too many lines."""


@dataclass(frozen=True)
class Part:
    """One statement of the text."""

    node: ast.stmt
    comment: str = ""


@dataclass
class Program:
    """The statements, imports and names that a class needs."""

    files: dict[str, File | None]
    """The files that were read, by module; shared, because they do not change."""
    own: str
    """The module of the class."""
    too_long: set[tuple[str, str]]
    """Modules and names that were found to bring too many lines; shared."""
    mentioned: Collection[str]
    """The attributes and strings that the text mentions, as far as they are known from an earlier round."""
    longest: int
    """How many lines may come along with a name of another file; of a longer one the signature is shown."""
    lines: int = 0
    limit: float = math.inf
    """The largest number of lines while a name of another file is followed."""
    values: dict[str, Any] = field(default_factory=dict)
    """What the names at the top of the text mean."""
    imports: dict[str, str] = field(default_factory=dict)
    """The import statements, by the name that each binds."""
    parts: dict[tuple[str, int, str], Part] = field(default_factory=dict)
    """Statements by module, position, and, in place of an import, the name that they bind."""
    followed: set[tuple[str, str]] = field(default_factory=set)
    sources: dict[str, list[str]] = field(default_factory=dict)
    """The modules from which a module imports something that is shown."""
    members: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """What is read of modules that are used as objects, nested, by module and name."""

    def follow(self, module: str, name: str) -> None:
        """Adds what gives a name its meaning in a module, and what that needs in turn.

        Raises:
            _Clash: a name of it already has another meaning.
            _TooLong: it brings too many lines.
        """
        file = self.file(module)
        value = MISSING if file is None else file.namespace.get(name, MISSING)
        if file is None or value is MISSING:  # a builtin, or nothing
            return
        if self.values.setdefault(name, value) is not value:
            raise _Clash(name)
        if (module, name) in self.followed:
            return
        self.followed.add((module, name))
        if name in file.imports:
            self._import(file, name, file.imports[name][1], file.imports[name][0])
        for position in () if name in file.imports else file.binds.get(name, ()):
            self._statement(file, position)

    def file(self, module: str) -> File | None:
        """Returns the file of a module; None if it has none."""
        if module not in self.files:
            self.files[module] = read_file(module)
        return self.files[module]

    def words(self) -> set[str]:
        """Returns the attributes in all statements, and the strings that may name attributes."""
        found: set[str] = set()
        for part in (n for each in self.parts.values() for n in ast.walk(each.node)):
            if isinstance(part, ast.Attribute):
                found.add(part.attr)
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                found.add(part.value)
        return found

    def reads(self, names: Iterable[str]) -> set[str]:
        """Returns the attributes that statements read of variables or attributes with these names."""
        found = {
            chain[i + 1]
            for each in self.parts.values()
            for chain in chains(each.node)
            for i in range(len(chain) - 1)
            if chain[i] in names
        }
        for call in (n for p in self.parts.values() for n in ast.walk(p.node) if isinstance(n, ast.Call)):
            if chain_of(call.func) == ("getattr",) and len(call.args) > 1:
                of, name = (chain_of(call.args[0]) or ("",)), call.args[1]
                if of[-1] in names and isinstance(name, ast.Constant):
                    found.add(str(name.value))
        return found

    def refer(self, value: Any) -> str:
        """Returns an expression for a class or function, and adds what it needs.

        Raises:
            Unwritable: it has no name at the top of its module.
        """
        if (text := spelled(value)) is not None:
            module = text.rpartition(".")[0]
            if module == "torch.nn" and self.values.get("nn") is nn:
                self.follow(self.own, "nn")
                return text.removeprefix("torch.")
            top = "torch" if module.startswith("torch") else module
            if top != "builtins":
                self.imports[top] = f"import {top}"
            return text.removeprefix("builtins.")
        name, module = getattr(value, "__name__", ""), getattr(value, "__module__", "")
        file = self.file(module)
        if file is None or file.namespace.get(name, MISSING) is not value:
            raise Unwritable(f"a {type(value).__name__}")
        if module == self.own:
            self.follow(module, name)
            return name
        bound = name if self.values.get(name, value) is value else f"{name}_"
        self.sources.setdefault(self.own, []).append(module)
        self._bring(module, -1, bound, module, name, value)
        return bound

    def _statement(self, file: File, position: int) -> None:
        key = file.name, position, ""
        if key in self.parts:
            return
        node, local = shortened(file.body[position], file, self.mentioned)
        if node is None:
            return
        self._add(key, Part(node))
        for name, imported in local.items():
            self._import(file, name, imported, -1)
        for name in sorted(free_roots(node)):
            self.follow(file.name, name)
        for chain in chains(node):
            if name_is_module(file.namespace.get(chain[0])):
                self._member(file, chain)
            for dotted in file.dotted & {".".join(chain[:length]) for length in range(2, len(chain))}:
                if is_importable(dotted):
                    self.imports[dotted] = f"import {dotted}"

    def _import(self, file: File, name: str, imported: Import, position: int) -> None:
        """Keeps an import of PyTorch or the standard library, or brings what is imported from elsewhere."""
        module = file.absolute(imported)
        value = file.namespace.get(name, MISSING)
        if value is MISSING:  # imported by a function
            whole = read_module(f"{module}.{imported.name}" if imported.name else module)
            value = getattr(read_module(module), imported.name or "", whole)
            if self.values.setdefault(name, value) is not value:
                raise _Clash(name)
        if isinstance(value, ModuleType) and is_importable(value.__name__):
            self.imports[name] = import_line(name, Import(0, value.__name__, None))
        elif is_importable(module):
            self.imports[name] = import_line(name, Import(0, module, imported.name))
        elif not is_ours(value) and not isinstance(value, ModuleType) and value is not MISSING:
            self._bring(file.name, position, name, module, imported.name or name, value)

    def _member(self, file: File, chain: tuple[str, ...]) -> None:
        """Brings what is read of a module that is used as an object: ``ops.double``."""
        holder: Any = file.namespace[chain[0]]
        held = self.members.setdefault((file.name, chain[0]), {})
        for name in chain[1:]:
            value = attribute(holder, name)
            if not name_is_module(value):
                break
            holder, held = value, held.setdefault(name, {})
        else:
            return
        if value is not MISSING and name not in held:
            held[name] = name if self.values.get(name, value) is value else f"{chain[0]}_{name}"
            self._bring(file.name, -1, held[name], holder.__name__, name, value)

    def _bring(self, into: str, position: int, bound: str, module: str, name: str, value: Any) -> None:
        """Binds a name to what another file defines: its value, its definition, or its signature."""
        if any(shown == bound for _, _, shown in self.parts):
            return
        if isinstance(value, type | FunctionType):
            if (text := spelled(value)) is not None:
                home, _, member = text.rpartition(".")
                self.imports[bound] = import_line(bound, Import(0, home, member))
                return
            home, member = value.__module__, value.__name__
            if (found := self.file(home)) and found.namespace.get(member) is value:
                module, name = home, member
        self.values[bound] = value
        self.sources.setdefault(into, []).append(module)
        short = is_plain(value) and len(repr(value)) < _LONGEST_VALUE
        text = write(value, self.refer) if short else ""
        if not text and self._brings_definition(module, name):
            if bound == name:
                return
            text = name
        text = text or self._table(value)
        code = f"{bound} = {text}" if text else signature(bound, value, self.mentioned)
        if "torch.nn.Module" in code:
            self.imports["torch"] = "import torch"
        part = Part(ast.parse(code).body[0], "" if text else f"From {module}:")
        self._add((into, position, bound), part)

    def _add(self, key: tuple[str, int, str], part: Part) -> None:
        self.parts[key] = part
        self.lines += ast.unparse(part.node).count("\n") + 1
        if self.lines > self.limit:
            raise _TooLong

    def _brings_definition(self, module: str, name: str) -> bool:
        """Adds a definition of another file with all that it needs, if that is short and clashes with no other name."""
        if not self.longest or (module, name) in self.too_long:
            return False
        known = (module, name) in self.followed
        copies = {each: copy.deepcopy(getattr(self, each)) for each in ("imports", "sources", "members")}
        copies |= {each: copy.copy(getattr(self, each)) for each in ("values", "parts", "followed")}
        trial = replace(self, limit=self.lines + self.longest, **copies)
        try:
            trial.follow(module, name)
        except _TooLong:
            self.too_long.add((module, name))
            return False
        except _Clash:
            return False
        if not known and trial.lines == self.lines:
            return False
        vars(self).update(vars(trial) | {"limit": self.limit})
        if self.lines > self.limit:
            raise _TooLong
        return True

    def _table(self, value: Any) -> str:
        """Writes the entries of a table that the code may read; an empty text if that is not possible."""
        if not isinstance(value, Mapping):
            return ""
        try:
            entries = {key: value[key] for key in value if key in self.mentioned}
            shown = [f"{key!r}: {write(each, self.refer)}" for key, each in entries.items()]
        except _TooLong:
            raise
        except Exception:  # a table of the user's may raise anything
            return ""
        return f"{{{', '.join(shown)}}}" if 1 <= len(shown) <= _MOST_ENTRIES else ""

    def in_order(self) -> list[Part]:
        """Returns the statements in an order in which they can run."""
        for (module, name), held in self.members.items():
            made = ast.parse(f"{name} = {_namespace(held)}").body[0]
            self.imports["SimpleNamespace"] = "from types import SimpleNamespace"
            self.parts[module, -1, f"{name}."] = Part(made)
        modules = self._sorted(self.own, set())
        keys = sorted(self.parts, key=lambda key: (modules.index(key[0]), key[1], *self._last(key)))
        return [self.parts[key] for key in keys]

    def _sorted(self, module: str, seen: set[str]) -> list[str]:
        """Returns a module after those from which it imports, which are not ``seen`` yet."""
        seen.add(module)
        before = [m for s in self.sources.get(module, ()) if s not in seen for m in self._sorted(s, seen)]
        return [*before, module]

    def _last(self, key: tuple[str, int, str]) -> tuple[bool, bool]:
        """Of what stands in place of imports, modules come last and signatures first."""
        return key[2].endswith("."), not self.parts[key].comment


def name_is_module(value: Any) -> bool:
    """Whether a value is a module whose contents are copied."""
    return isinstance(value, ModuleType) and not is_importable(value.__name__) and not is_ours(value)


def read_module(name: str) -> Any:
    """Imports a module as a function would; returns ``MISSING`` if that fails, as on a branch that is never taken."""
    try:
        return importlib.import_module(name)
    except Exception:
        return MISSING


def import_line(name: str, imported: Import) -> str:
    """Writes an import that binds a name."""
    if imported.name is None:
        top = imported.module
        return f"import {top}" if top == name else f"import {top} as {name}"
    alias = "" if imported.name == name else f" as {name}"
    return f"from {imported.module} import {imported.name}{alias}"


def _namespace(held: Mapping[str, Any]) -> str:
    shown = (f"{n}={each if isinstance(each, str) else _namespace(each)}" for n, each in held.items())
    return f"SimpleNamespace({', '.join(shown)})"

"""Collects what a class needs: slices of its own file, and short definitions or signatures of what that imports."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from kernelllm_judge.core.syntax import chain_of
from pytest_kernelllm.models.prompt.files import (
    MISSING,
    File,
    chains,
    home_of,
    is_importable,
    is_ours,
    read_file,
    spelled,
)
from pytest_kernelllm.models.prompt.scopes import free_roots
from pytest_kernelllm.models.prompt.shorten import shortened
from pytest_kernelllm.models.prompt.values import Unwritable, is_plain, signature, write

_LONGEST_VALUE = 200
"""Characters of a constant of another file that is written."""

_MOST_ENTRIES = 8
"""A table of another file with more entries that the code may read is not written."""


class _TooLong(Exception):
    """Raised if a definition of another file brings too many lines."""


@dataclass(frozen=True)
class Part:
    """One statement of the text."""

    node: ast.stmt
    comment: str = ""


class Program:
    """The statements, imports and names that definitions of one file need."""

    def __init__(
        self,
        file: File,
        mentioned: Collection[str],
        longest: int,
        limit: float = math.inf,
        definitions: dict[tuple[str, str], Program | None] | None = None,
    ) -> None:
        """Needs nothing yet.

        Args:
            file: that holds the definitions.
            mentioned: the attributes and strings that the text mentions, as far as they are known from an earlier round.
            longest: how many lines a definition of another file may bring; of a longer one the signature is shown.
            limit: how many lines this one may have.
            definitions: of other files, by module and name; None where one is not shown.
        """
        self.imports: dict[str, str] = {}
        """The import statements, by the name that each binds."""
        self._file, self._mentioned, self._longest, self._limit = file, mentioned, longest, limit
        self._definitions = {} if definitions is None else definitions
        self._values: dict[str, Any] = {}
        """What the names at the top of the text mean."""
        self._stated: dict[str, Part] = {}
        """Signatures, by name."""
        self._brought: dict[tuple[str, int], Part] = {}
        """Statements of other files, by module and position; with -1, the values of names."""
        self._own: dict[int, Part] = {}
        self._lines = 0

    def follow(self, name: str) -> None:
        """Adds what gives a name its meaning in the file, and what that needs in turn."""
        value = self._file.namespace.get(name, MISSING)
        if value is MISSING or name in self._values:  # a builtin, or nothing
            return
        self._values[name] = value
        if name not in self._file.binds:
            self._import(name, value)
        for position in self._file.binds.get(name, ()):
            if position in self._own:
                continue
            node = shortened(self._file.body[position], self._file.namespace, self._mentioned)
            if node is not None:
                self._own[position] = self._counted(Part(node))
                for each in sorted(free_roots(node)):
                    self.follow(each)

    @property
    def parts(self) -> list[Part]:
        """The statements in an order in which they can run."""
        own = [self._own[position] for position in sorted(self._own)]
        return [*self._stated.values(), *self._brought.values(), *own]

    def words(self) -> set[str]:
        """Returns the attributes in all statements, and the strings that may name attributes."""
        nodes = [node for part in self.parts for node in ast.walk(part.node)]
        strings = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        return strings | {node.attr for node in nodes if isinstance(node, ast.Attribute)}

    def reads(self, names: Iterable[str]) -> set[str]:
        """Returns the attributes that statements read of variables or attributes with these names."""
        every = [chain for part in self.parts for chain in chains(part.node)]
        found = {chain[i + 1] for chain in every for i in range(len(chain) - 1) if chain[i] in names}
        for call in (n for part in self.parts for n in ast.walk(part.node) if isinstance(n, ast.Call)):
            if chain_of(call.func) == ("getattr",) and len(call.args) > 1:
                of, name = (chain_of(call.args[0]) or ("",)), call.args[1]
                if of[-1] in names and isinstance(name, ast.Constant):
                    found.add(str(name.value))
        return found

    def refer(self, value: Any) -> str:
        """Returns an expression for a class or function, and adds what it needs."""
        if (text := spelled(value)) is not None:
            module = text.rpartition(".")[0]
            if module == "torch.nn" and self._file.namespace.get("nn") is nn:
                self.follow("nn")
                return text.removeprefix("torch.")
            top = "torch" if module.startswith("torch") else module
            if top != "builtins":
                self.imports[top] = f"import {top}"
            return text.removeprefix("builtins.")
        name, home = getattr(value, "__name__", ""), read_file(getattr(value, "__module__", None))
        if home is None or home.namespace.get(name) is not value or self._meaning(name, value) is not value:
            raise Unwritable(f"a {type(value).__name__}")
        if home.name == self._file.name:
            self.follow(name)
        elif name not in self._values:
            self._values[name] = value
            self._bring(name, value)
        return name

    def _meaning(self, name: str, otherwise: Any) -> Any:
        """What a name means here, also before it is needed."""
        return self._values.get(name, self._file.namespace.get(name, otherwise))

    def _import(self, name: str, value: Any) -> None:
        """Keeps an import of PyTorch or the standard library, or brings what is imported from elsewhere."""
        if isinstance(value, ModuleType) and is_importable(value.__name__):
            self.imports[name] = f"import {value.__name__}" + (
                f" as {name}" if name != value.__name__ else ""
            )
        elif (text := spelled(value)) is not None:
            home, _, member = text.rpartition(".")
            self.imports[name] = f"from {home} import {member}" + (f" as {name}" if name != member else "")
        elif not is_ours(value):
            self._bring(name, value)

    def _bring(self, bound: str, value: Any) -> None:
        """Binds a name to what another file defines: its value, its definition, or its signature."""
        if isinstance(value, type | FunctionType) and (found := self._definition(value)):
            self.imports |= found.imports
            self._values |= found._values
            self._stated |= found._stated
            new = found._brought | {(found._file.name, n): found._own[n] for n in sorted(found._own)}
            self._brought |= {
                key: self._counted(part) for key, part in new.items() if key not in self._brought
            }
            text = value.__name__
        else:
            text = self._text(value)
        if not text:
            code = signature(bound, value, self._mentioned)
            if "torch.nn.Module" in code:
                self.imports["torch"] = "import torch"
            self._stated[bound] = self._counted(Part(ast.parse(code).body[0], f"From {home_of(value)}:"))
        elif text != bound:
            self._brought[bound, -1] = self._counted(Part(ast.parse(f"{bound} = {text}").body[0]))

    def _text(self, value: Any) -> str:
        """Writes a short constant, or the entries of a table that the code may read; an empty text for anything else."""
        if is_plain(value) and len(repr(value)) < _LONGEST_VALUE:
            return write(value, self.refer)
        try:
            read = {k: value[k] for k in value if k in self._mentioned} if isinstance(value, Mapping) else {}
            return write(read, self.refer) if 1 <= len(read) <= _MOST_ENTRIES else ""
        except _TooLong:
            raise
        except Exception:  # a table of the user's may raise anything
            return ""

    def _definition(self, value: Any) -> Program | None:
        """Returns a definition of another file with all that it needs, if that is short and clashes with no other name."""
        name, file = value.__name__, read_file(value.__module__)
        if not self._longest or file is None or file.namespace.get(name) is not value:
            return None
        key = file.name, name
        if key not in self._definitions:
            self._definitions[key] = (
                None  # also while it is followed: what needs itself has a signature first
            )
            found = Program(file, self._mentioned, self._longest, self._longest, self._definitions)
            try:
                found.follow(name)
                self._definitions[key] = found
            except _TooLong:
                pass
        found_or_none = self._definitions[key]
        values = found_or_none._values if found_or_none else {}
        clashes = any(self._meaning(each, value) is not value for each, value in values.items())
        return None if clashes else found_or_none

    def _counted(self, part: Part) -> Part:
        self._lines += ast.unparse(part.node).count("\n") + 1
        if self._lines > self._limit:
            raise _TooLong
        return part

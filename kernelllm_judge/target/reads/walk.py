"""Goes through the objects and the code that ``forward`` can reach, and pins the values that are read."""

from __future__ import annotations

import enum
import functools
import sys
import types
from typing import Any

from torch import nn

from kernelllm_judge.target.reads.kinds import is_generated, is_torch, is_value
from kernelllm_judge.target.reads.mentions import FUNCTIONS, NEVER_RUN, reads_outside
from kernelllm_judge.target.reads.source import is_changed, is_defined, is_literal_default
from kernelllm_judge.target.reads.values import Refused, Values
from kernelllm_runtime.pins.functions import cells, defaults, function_of, imports, is_library, reads_of
from kernelllm_runtime.pins.names import ties

_ALWAYS_RUN = frozenset(("forward", "backward", "setup_context", "jvp"))

_TAKEN = frozenset(("typing", "enum", "abc"))
"""Modules whose classes are taken as they are: their code reads nothing of a member or an instance but what they put there…"""

_TABLES = ("_member_map_", "_member_names_", "_value2member_map_")
"""…namely these, of an enum."""

_OF_ENUMS = frozenset(("_missing_", "_iter_member_"))
"""Methods of an enum that its machinery calls."""


class Walk(Values):
    """Goes through the objects that code can reach from ``forward``, until no further names are found."""

    def pins(self) -> dict[str, str]:
        """Returns all pins."""
        before = None
        while before != (now := self.mentions.size()):
            before = now
            self.found, self.visited = {}, set()
            self._module()
        return {**dict(sorted(self.found.items())), **ties(self.module)}

    def _module(self) -> None:
        for path, part in self.module.named_modules(remove_duplicate=False):
            prefix = f"{path}." if path else ""
            self.follow_class(f"global:self.{prefix}__class__", type(part))
            self.attributes(f"value:{prefix}", part)
            for name, tensor in (*part._parameters.items(), *part._buffers.items()):
                if tensor is not None:
                    self.tensor(f"value:{prefix}{name}", tensor, self._matters(part, name))
            gone_through = isinstance(part, nn.ParameterDict) and self.mentions.read(path.rpartition(".")[2])
            if gone_through or self.mentions.in_order:
                self.leaf(f"order:{path}")
        if self.mentions.asks_class:
            self.leaf("value:__class__")

    def _matters(self, part: nn.Module, name: str) -> bool:
        counted = isinstance(part, nn.modules.batchnorm._NormBase) and name == "num_batches_tracked"
        if counted and part.momentum is not None:
            return False  # it is counted up, and no result depends on it
        return is_torch(type(part)) or self.mentions.read(name)

    def follow_class(self, name: str, cls: type) -> None:
        """Follows the methods of a class that may run, and pins the class's own values that are read.

        ``name`` reaches the class in the code of ``forward``.
        """
        if id(cls) in self.outer:
            self.mentions.by_class = True  # its values are pinned where it was reached first
            return
        if (id(cls), name) in self.visited:
            return
        self.visited.add((id(cls), name))
        self.outer.append(id(cls))
        self._members(name, cls)
        self.outer.pop()

    def _members(self, name: str, cls: type) -> None:
        seen: set[str] = set()
        made = not name.endswith(".__class__")  # code that names a class may make instances
        self.follow_class(f"{name}.__class__", type(cls))
        if issubclass(cls, enum.Enum):  # code may look members up by their names or values
            for table in _TABLES:
                self.value(f"{name}.{table}", getattr(cls, table))
        for base in cls.__mro__:
            if is_torch(base) or _is_taken(base):
                continue
            library = is_library(base.__module__, "") and not self.library
            changed = not (library or self.library) and is_changed(base)
            for key, value in list(vars(base).items()):
                path = f"{name}.{key}" if key not in seen else f"{name}.<{base.__name__}>.{key}"
                first = key not in seen
                seen.add(key)
                if isinstance(value, FUNCTIONS):
                    function = function_of(value)
                    of_enum = key in _OF_ENUMS and issubclass(cls, enum.Enum)
                    if not (of_enum or self._runs(key, made)):
                        continue
                    if library and isinstance(function, types.FunctionType):
                        self.mentions.add(function.__code__)
                    else:
                        if isinstance(value, functools.cached_property) and path.startswith("global:self."):
                            # Instances may have another value in its place.
                            self.leaf(path.replace("global:self.", "value:").replace("__class__.", ""))
                        self.mentions.by_class |= isinstance(value, classmethod)
                        root = first and path == "global:self.__class__.forward"
                        if changed:
                            self.leaf(path)  # which of its definitions it has may depend on anything
                        self._function("global:" if root else f"{path}.", function)
                elif (
                    not (library or self.library)
                    and (key in self.mentions.names or (not key.startswith("__") and self.mentions.read(key)))
                    and is_value(value)
                ):
                    on_instance = name.startswith("global:self.") and self._on_instance(f"{name}.{key}")
                    if self.mentions.by_class or not on_instance:
                        self.value(path, value)

    def _on_instance(self, name: str) -> bool:
        """Whether a value of a class is pinned already, as its instances have it."""
        path = name.removeprefix("global:self.").replace("__class__.", "")
        return path in self.known or f"value:{path}" in self.found

    def _runs(self, name: str, made: bool) -> bool:
        special = name.startswith("__") and name.endswith("__")
        if special:
            return made or name not in NEVER_RUN or name in self.mentions.names
        return self.mentions.read(name) or name in _ALWAYS_RUN

    def _function(self, prefix: str, function: Any) -> None:
        """Takes the names in a function's code, and pins what its closure, globals and defaults are."""
        key = (id(function), prefix)
        if not isinstance(function, types.FunctionType) or id(function) in self.outer or key in self.visited:
            return
        self.visited.add(key)
        self.outer.append(id(function))
        self._inside(prefix, function)
        self.outer.pop()

    def _inside(self, prefix: str, function: types.FunctionType) -> None:
        module = function.__globals__.get("__name__") or ""
        held = {key: cell.cell_contents for key, cell in cells(function).items()}
        generated = self.ran and is_generated(function)  # its code counts if it ran
        if generated or (is_library(module, "") and not self.library):
            for key, value in held.items():  # a wrapper of a library around a function of the user's
                self._function(f"{prefix}{key}.", function_of(value))
                if type(value) in (bool, int, float, str, list, tuple, dict):
                    self.value(f"{prefix}{key}", value)
            return
        self.mentions.add(function.__code__)
        if is_library(module, ""):
            return  # the values of an installed package belong to its version
        for key, value in held.items():
            if value is getattr(function, "__wrapped__", None):
                self._function(f"{prefix}{key}.", function_of(value))
            elif not (isinstance(value, type) and value in type(self.module).__mro__):
                self._named(f"{prefix}{key}", key, value, None)
        for key, value in defaults(function).items():
            if not is_literal_default(function.__code__, key):
                self.value(f"{prefix}({key})", value)
        if imported := imports(function):
            self.mentions.add_within(imported)
            self.leaf(f"{prefix}(imports)")
        read = reads_of(function.__code__)
        if reads_outside(read):
            text = "reads the environment, a file, a setting or the names of another module, or runs code from text"
            raise Refused(f"`{function.__qualname__}` {text}, which cannot be compared")
        for key, value in vars(function).items():
            if self.mentions.read(key) and not key.startswith("__"):
                self.value(f"{prefix}{key}", value)
        for key in read.globals:
            if key in function.__globals__:
                self._named(f"{prefix}{key}", key, function.__globals__[key], function.__globals__)

    def _named(self, name: str, key: str, value: Any, space: dict[str, Any] | None) -> None:
        """Pins what a name stands for, unless its definition in the source says it all; follows code."""
        function = function_of(value)
        code = isinstance(function, types.FunctionType | types.BuiltinFunctionType | type | types.ModuleType)
        if code and not is_defined(key, value, space):
            self.leaf(name, value)
        if isinstance(function, types.FunctionType):
            self._function(f"{name}.", function)
        elif isinstance(value, type):
            self.follow_class(name, value)
        elif isinstance(value, types.ModuleType):
            self.follow_file(name, value)
        elif not code:
            self.value(name, value)

    def follow_file(self, name: str, value: types.ModuleType) -> None:
        """Pins those names of a Python module that are read."""
        if is_library(value.__name__, "") or (id(value), name) in self.visited:
            return
        self.visited.add((id(value), name))
        for key in sorted(self.mentions.names & vars(value).keys()):
            self._named(f"{name}.{key}", key, vars(value)[key], vars(value))


def _is_taken(cls: type) -> bool:
    """Whether a class is one of ``_TAKEN`` itself: what ``ABCMeta(…)`` makes elsewhere names ``abc`` as its module, too."""
    named = getattr(sys.modules.get(cls.__module__), cls.__name__, None)
    return cls.__module__ in _TAKEN and named is cls

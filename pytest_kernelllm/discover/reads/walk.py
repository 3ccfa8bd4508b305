"""Goes through the objects and the code that ``forward`` can reach, and pins the values that are read."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Set
from typing import Any

import torch
from torch import nn

from pytest_kernelllm.core.pins.functions import (
    cells,
    defaults,
    function_of,
    imports,
    is_library,
    reads_of,
)
from pytest_kernelllm.core.pins.names import found, pinned, ties
from pytest_kernelllm.core.pins.objects import MISSING, Unpinnable, is_plain_object, reduced, state_of
from pytest_kernelllm.core.pins.texts import text_of
from pytest_kernelllm.core.pins.unchanged import settled
from pytest_kernelllm.core.targets import Scalar, TensorSpec
from pytest_kernelllm.discover.reads.kinds import (
    is_fixed,
    is_generated,
    is_opaque,
    is_torch,
    is_value,
    own_attributes,
)
from pytest_kernelllm.discover.reads.mentions import FUNCTIONS, NEVER_RUN, Mentions, reads_outside
from pytest_kernelllm.discover.reads.source import is_defined, is_literal_default

_ALWAYS_RUN = frozenset(("forward", "backward", "setup_context", "jvp"))
_CALLABLES = (types.BuiltinFunctionType, functools.partial, functools._lru_cache_wrapper)


class Refused(Exception):
    """A value cannot be pinned; the text names it."""


class Walk:
    """Goes through the objects that code can reach from ``forward``, until no further names are found."""

    def __init__(
        self, module: nn.Module, known: Mapping[str, TensorSpec | Scalar], ran: Set[types.CodeType]
    ) -> None:
        """Takes what ``state`` takes."""
        self.module, self.known, self.ran = module, known, bool(ran)
        self.library = is_library(type(module).__module__, "")
        self.mentions = Mentions(module)
        self.found: dict[str, str] = {}
        self._visited: set[tuple[int, str]] = set()
        self._outer: list[int] = []
        for code in ran:
            self.mentions.add(code)

    def pins(self) -> dict[str, str]:
        """Returns all pins."""
        before = None
        while before != (now := self.mentions.size()):
            before = now
            self.found, self._visited = {}, set()
            self._module()
        return {**dict(sorted(self.found.items())), **ties(self.module)}

    def _module(self) -> None:
        for path, part in self.module.named_modules(remove_duplicate=False):
            prefix = f"{path}." if path else ""
            self._class(f"global:self.{prefix}__class__", type(part))
            self._attributes(f"value:{prefix}", part)
            for name, tensor in (*part._parameters.items(), *part._buffers.items()):
                if tensor is not None and is_fixed(tensor) and self._matters(part, name):
                    self._leaf(f"value:{prefix}{name}", tensor)

    def _matters(self, part: nn.Module, name: str) -> bool:
        counted = isinstance(part, nn.modules.batchnorm._NormBase) and name == "num_batches_tracked"
        if counted and part.momentum is not None:
            return False  # it is counted up, and no result depends on it
        return is_torch(type(part)) or self.mentions.read(name)

    def _attributes(self, prefix: str, part: nn.Module) -> None:
        ours = not is_torch(type(part))
        for name, value in own_attributes(part):
            # torch's own layers derive their private attributes from public ones.
            public = not ours and not name.startswith("_") and isinstance(value, list | tuple | dict | set)
            if (self.mentions.read(name) or public) and not self._is_known(
                f"{prefix}{name}".partition(":")[2], value, ours
            ):
                self._value(f"{prefix}{name}", value)
        if ours:
            self._absent(prefix, part)

    def _is_known(self, name: str, value: Any, ours: bool) -> bool:
        """Whether the plain attributes of a domain already determine a value."""
        if isinstance(value, list | tuple):
            return (
                not ours
                and len(value) > 0
                and all(f"{name}[{index}]" in self.known for index in range(len(value)))
            )
        if name not in self.known:
            return False
        if isinstance(value, types.BuiltinFunctionType):
            return value.__self__ is None or isinstance(value.__self__, types.ModuleType | type)
        return not isinstance(value, types.FunctionType) or settled(value)

    def _absent(self, prefix: str, owner: Any) -> None:
        for name in sorted(self.mentions.asked):
            if getattr(owner, name, MISSING) is MISSING:
                self.found[f"{prefix}{name}"] = text_of(MISSING, self.module)

    # ------------------------------------------------------------------ values

    def _value(self, name: str, value: Any) -> None:
        """Pins a value under a name, and follows the code in it."""
        function = function_of(value)
        if id(value) in self._outer or value is self.module:
            self._leaf(name, value)
            return
        self._outer.append(id(value))
        if isinstance(function, types.FunctionType) or isinstance(value, _CALLABLES):
            self.mentions.add_within(value)
            self._leaf(name, value)
        elif isinstance(value, type):
            self._leaf(name, value)
            self._class(_as_code(name), value)
        elif isinstance(value, types.ModuleType):
            self._of_module(name, value)
        elif is_plain_object(value) and not is_opaque(value):
            self._object(name, value)
        else:
            self.mentions.add_within(value)
            self._leaf(name, value)
        self._outer.pop()

    def _object(self, name: str, value: Any) -> None:
        """Pins the class of an object, and those attributes that are read."""
        try:
            reduced(value)
        except Unpinnable as error:
            raise Refused(f"{_shown(name)} {error}") from None
        self._leaf(f"{name}.__class__", type(value))
        for key, held in state_of(value).items():
            if self.mentions.read(key):
                self._value(f"{name}.{key}", held)
        self._class(f"{_as_code(name)}.__class__", type(value))
        self._absent(f"{name}.", value)

    def _leaf(self, name: str, value: Any = None) -> None:
        """Pins what a name reaches, which must be ``value`` unless that is None."""
        try:
            with torch.no_grad():
                text = pinned(self.module, name)
                if value is not None and found(self.module, name) is not value:
                    raise Unpinnable(
                        "is another object each time it is read, or cannot be reached by this name"
                    )
                if text != pinned(self.module, name):
                    raise Unpinnable("changes each time it is read")
        except Unpinnable as error:
            raise Refused(f"{_shown(name)} {error}") from None
        self.found[name] = text

    # ------------------------------------------------------------------ code

    def _class(self, name: str, cls: type) -> None:
        """Follows the methods of a class that may run, and pins the class's own values that are read.

        ``name`` reaches the class in the code of ``forward``.
        """
        if id(cls) in self._outer:
            self.mentions.by_class = True  # its values are pinned where it was reached first
            return
        if (id(cls), name) in self._visited:
            return
        self._visited.add((id(cls), name))
        self._outer.append(id(cls))
        self._members(name, cls)
        self._outer.pop()

    def _members(self, name: str, cls: type) -> None:
        seen: set[str] = set()
        for base in cls.__mro__:
            if is_torch(base) or base.__module__ == "typing":
                continue
            library = is_library(base.__module__, "") and not self.library
            for key, value in list(vars(base).items()):
                path = f"{name}.{key}" if key not in seen else f"{name}.<{base.__name__}>.{key}"
                first = key not in seen
                seen.add(key)
                if isinstance(value, FUNCTIONS):
                    function = function_of(value)
                    if library and isinstance(function, types.FunctionType) and self._runs(key):
                        self.mentions.add(function.__code__)
                    elif self._runs(key) and not (self.ran and is_generated(function)):
                        if isinstance(value, functools.cached_property) and path.startswith("global:self."):
                            # Instances may have another value in its place.
                            self._leaf(path.replace("global:self.", "value:").replace("__class__.", ""))
                        self.mentions.by_class |= isinstance(value, classmethod)
                        root = first and path == "global:self.__class__.forward"
                        self._function("global:" if root else f"{path}.", function)
                elif (
                    not (library or self.library)
                    and not key.startswith("__")
                    and self.mentions.read(key)
                    and is_value(value)
                ):
                    on_instance = name.startswith("global:self.") and self._on_instance(f"{name}.{key}")
                    if self.mentions.by_class or not on_instance:
                        self._value(path, value)

    def _on_instance(self, name: str) -> bool:
        """Whether a value of a class is pinned already, as its instances have it."""
        path = name.removeprefix("global:self.").replace("__class__.", "")
        return path in self.known or f"value:{path}" in self.found

    def _runs(self, name: str) -> bool:
        special = name.startswith("__") and name.endswith("__")
        if special:
            return name not in NEVER_RUN or name in self.mentions.names
        return self.mentions.read(name) or name in _ALWAYS_RUN

    def _function(self, prefix: str, function: Any) -> None:
        """Takes the names in a function's code, and pins what its closure, globals and defaults are."""
        key = (id(function), prefix)
        if (
            not isinstance(function, types.FunctionType)
            or id(function) in self._outer
            or key in self._visited
        ):
            return
        self._visited.add(key)
        self._outer.append(id(function))
        self._inside(prefix, function)
        self._outer.pop()

    def _inside(self, prefix: str, function: types.FunctionType) -> None:
        module = function.__globals__.get("__name__") or ""
        held = {key: cell.cell_contents for key, cell in cells(function).items()}
        if is_library(module, "") and not self.library:
            for key, value in held.items():  # a wrapper of a library around a function of the user's
                self._function(f"{prefix}{key}.", function_of(value))
                if type(value) in (bool, int, float, str, list, tuple, dict):
                    self._value(f"{prefix}{key}", value)
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
                self._value(f"{prefix}({key})", value)
        if imported := imports(function):
            self.mentions.add_within(imported)
            self._leaf(f"{prefix}(imports)")
        read = reads_of(function.__code__)
        if reads_outside(read):
            text = "reads the environment, a file or the names of another module, or runs code from text"
            raise Refused(f"`{function.__qualname__}` {text}, which cannot be compared")
        for key, value in vars(function).items():
            if self.mentions.read(key) and not key.startswith("__"):
                self._value(f"{prefix}{key}", value)
        for key in read.globals:
            if key in function.__globals__:
                self._named(f"{prefix}{key}", key, function.__globals__[key], function.__globals__)

    def _named(self, name: str, key: str, value: Any, space: dict[str, Any] | None) -> None:
        """Pins what a name stands for, unless its definition in the source says it all; follows code."""
        function = function_of(value)
        code = isinstance(function, types.FunctionType | types.BuiltinFunctionType | type | types.ModuleType)
        if code and not is_defined(key, value, space):
            self._leaf(name, value)
        if isinstance(function, types.FunctionType):
            self._function(f"{name}.", function)
        elif isinstance(value, type):
            self._class(name, value)
        elif isinstance(value, types.ModuleType):
            self._of_module(name, value)
        elif not code:
            self._value(name, value)

    def _of_module(self, name: str, value: types.ModuleType) -> None:
        if is_library(value.__name__, "") or (id(value), name) in self._visited:
            return
        self._visited.add((id(value), name))
        for key in sorted(self.mentions.names & vars(value).keys()):
            if not key.startswith("__"):
                self._named(f"{name}.{key}", key, vars(value)[key], vars(value))


def _as_code(name: str) -> str:
    """The name by which code of ``forward`` reaches what a pin names."""
    return name.replace("value:", "global:self.", 1)


def _shown(name: str) -> str:
    kind, _, path = name.partition(":")
    return f"`self.{path}`" if kind == "value" else f"`{path}`, which forward reads,"

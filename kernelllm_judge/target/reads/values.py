"""Pins values: attributes of modules, of objects that they hold, and of tensors."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Set
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core.targets import Scalar, TensorSpec
from kernelllm_judge.target.reads.kinds import is_fixed, is_opaque, is_torch, own_attributes
from kernelllm_judge.target.reads.mentions import Mentions
from kernelllm_runtime.pins.functions import function_of, is_library
from kernelllm_runtime.pins.names import found, pinned
from kernelllm_runtime.pins.objects import MISSING, Unpinnable, is_plain_object, reduced, state_of
from kernelllm_runtime.pins.texts import text_of
from kernelllm_runtime.pins.unchanged import settled

_CALLABLES = (types.BuiltinFunctionType, functools.partial, functools._lru_cache_wrapper)


class Refused(Exception):
    """A value cannot be pinned; the text names it."""


class Values:
    """Pins values under names, and follows the code in them."""

    def __init__(
        self, module: nn.Module, known: Mapping[str, TensorSpec | Scalar], ran: Set[types.CodeType]
    ) -> None:
        """The arguments are those of ``state``."""
        self.module, self.known, self.ran = module, known, bool(ran)
        self.library = is_library(type(module).__module__, "")
        self.mentions = Mentions(module)
        self.found: dict[str, str] = {}
        self.visited: set[tuple[int, str]] = set()
        self.outer: list[int] = []
        for code in ran:
            self.mentions.add(code)

    def tensor(self, name: str, tensor: torch.Tensor, matters: bool) -> None:
        """Pins the values of a parameter or buffer that the judge does not vary, and attributes given to it."""
        if is_fixed(tensor) and matters:
            self.leaf(name, tensor)
        for key, value in vars(tensor).items():
            if self.mentions.read(key):
                self.value(f"{name}.{key}", value)
        self._absent(f"{name}.", tensor)

    def attributes(self, prefix: str, part: nn.Module) -> None:
        """Pins the attributes of a module that are read; ``prefix`` is put before their names."""
        ours = not is_torch(type(part))
        for name, value in own_attributes(part):
            # torch's own layers derive their private attributes from public ones.
            public = not ours and not name.startswith("_") and isinstance(value, list | tuple | dict | set)
            if (self.mentions.read(name) or public) and not self._is_known(
                f"{prefix}{name}".partition(":")[2], value, ours
            ):
                self.value(f"{prefix}{name}", value)
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

    def value(self, name: str, value: Any) -> None:
        """Pins a value under a name, and follows the code in it."""
        function = function_of(value)
        if id(value) in self.outer or value is self.module:
            self.leaf(name, value)
            return
        self.outer.append(id(value))
        if isinstance(function, types.FunctionType) or isinstance(value, _CALLABLES):
            self.mentions.add_within(value)
            self.leaf(name, value)
        elif isinstance(value, type):
            self.leaf(name, value)
            self.follow_class(_as_code(name), value)
        elif isinstance(value, types.ModuleType):
            self.follow_file(name, value)
        elif is_plain_object(value) and not is_opaque(value):
            self._object(name, value)
        else:
            self.mentions.add_within(value)
            self.leaf(name, value)
        self.outer.pop()

    def _object(self, name: str, value: Any) -> None:
        """Pins the class of an object, and those attributes that are read."""
        try:
            reduced(value)
        except Unpinnable as error:
            raise Refused(f"{_shown(name)} {error}") from None
        self.leaf(f"{name}.__class__", type(value))
        for key, held in state_of(value).items():
            if self.mentions.read(key):
                self.value(f"{name}.{key}", held)
        self.follow_class(f"{_as_code(name)}.__class__", type(value))
        self._absent(f"{name}.", value)
        if self.mentions.in_order and name.startswith("value:"):
            self.leaf(name.replace("value:", "order:", 1))

    def leaf(self, name: str, value: Any = None) -> None:
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

    def follow_class(self, name: str, cls: type) -> None:
        """Follows the code of a class, which ``name`` reaches, and pins the class's own values that are read."""
        raise NotImplementedError

    def follow_file(self, name: str, value: types.ModuleType) -> None:
        """Pins those names of a Python module that are read."""
        raise NotImplementedError


def _as_code(name: str) -> str:
    """The name by which code of ``forward`` reaches what a pin names."""
    return name.replace("value:", "global:self.", 1)


def _shown(name: str) -> str:
    kind, _, path = name.partition(":")
    return f"`self.{path}`" if kind == "value" else f"`{path}`, which forward reads,"

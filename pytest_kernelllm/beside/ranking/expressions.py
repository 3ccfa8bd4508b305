"""Writes values as Python expressions."""

from __future__ import annotations

import dataclasses
import enum
import math
import sys
from dataclasses import dataclass, field
from typing import Any

import torch


class Inexpressible(Exception):
    """A value has no expression; the text says what it is."""


@dataclass
class Imports:
    """The imports of a file that is being written."""

    _names: dict[tuple[str, str], str] = field(default_factory=dict)

    def name(self, thing: Any) -> str:
        """Returns the name by which the file reaches a class or function.

        Raises:
            Inexpressible: no import reaches it.
        """
        module, qualname = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
        found: Any = sys.modules.get(module or "")
        for part in qualname.split("."):
            found = getattr(found, part, None)
        if found is not thing or module in (None, "__main__"):
            raise Inexpressible(f"{qualname or thing!r}, which no import reaches")
        first, dot, rest = qualname.partition(".")
        if module == "builtins":
            return str(qualname)
        return self._local(module, first) + dot + rest

    def _local(self, module: str, name: str) -> str:
        if (module, name) not in self._names:
            taken = set(self._names.values())
            free = (f"{name}_{number}" if number > 1 else name for number in range(1, len(taken) + 2))
            self._names[module, name] = next(each for each in free if each not in taken)
        return self._names[module, name]

    def __str__(self) -> str:
        """Returns the import statements, sorted."""
        lines = []
        for module in sorted({module for module, _ in self._names}):
            names = sorted(
                name if local == name else f"{name} as {local}"
                for (owner, name), local in self._names.items()
                if owner == module
            )
            lines.append(f"from {module} import {', '.join(names)}")
        return "\n".join(lines)


def expression(value: Any, imports: Imports) -> str:
    """Returns an expression for a value: plain values, collections, classes, functions, enums, dataclasses and configurations.

    Raises:
        Inexpressible: there is none.
    """
    if isinstance(value, enum.Enum):
        return f"{imports.name(type(value))}.{value.name}"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or type(value) in (bool, int, float, str, bytes):
        return repr(value)
    if isinstance(value, torch.dtype):
        return str(value)
    if type(value) in (tuple, torch.Size):
        inner = ", ".join(expression(each, imports) for each in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if type(value) in (list, set) and (value or type(value) is list):
        inner = ", ".join(expression(each, imports) for each in value)
        return f"[{inner}]" if isinstance(value, list) else f"{{{inner}}}"
    if type(value) is dict:
        return (
            "{"
            + ", ".join(f"{expression(k, imports)}: {expression(v, imports)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, type) or type(value) in (type(expression), type(len)):
        return imports.name(value)
    if (
        dataclasses.is_dataclass(value)
        and type(value).__init__ is not object.__init__
        and not _is_config(value)
    ):
        given = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return f"{imports.name(type(value))}({', '.join(_keywords(given, imports))})"
    if _is_config(value):
        return f"{imports.name(type(value))}({', '.join(_keywords(_settings(value), imports))})"
    raise Inexpressible(f"a {type(value).__qualname__}")


def _keywords(values: dict[str, Any], imports: Imports) -> list[str]:
    return [f"{name}={expression(value, imports)}" for name, value in values.items()]


def _is_config(value: Any) -> bool:
    """Whether a value is a configuration of transformers or has its methods."""
    return callable(getattr(value, "to_diff_dict", None))


def _settings(config: Any) -> dict[str, Any]:
    """The keyword arguments that make a configuration again: those unlike the defaults."""
    left_out = ("model_type", "transformers_version", "architectures", "dtype", "torch_dtype")
    given = {name: value for name, value in config.to_diff_dict().items() if name not in left_out}
    attention = getattr(config, "_attn_implementation", None)
    return given | ({"attn_implementation": attention} if isinstance(attention, str) else {})

"""The base of all records: a frozen dataclass that is written as JSON, and read back only in its published form.

Standard library only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

SCHEMA = 3
"""Version of the JSON form of every record."""


NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""The strings that stand in JSON for floats that it has no number for. Read back as floats wherever a float may stand."""


class RecordError(ValueError):
    """A stored or received record does not have the published form."""


class SchemaError(RecordError):
    """A record is of another version of the published form."""


def _decode(annotation: Any, value: Any, where: str) -> Any:
    """Checks ``value`` against a type annotation and rebuilds tuples and records from JSON's lists and objects."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        for option in args:
            try:
                return _decode(option, value, where)
            except RecordError:
                continue
        raise RecordError(f"{where}: {value!r} is none of {annotation}")
    if origin is Literal:
        if value not in args:
            raise RecordError(f"{where}: {value!r} is none of {args}")
        return value
    if origin is tuple and isinstance(value, list | tuple):
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_decode(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
        if len(args) != len(value):
            raise RecordError(f"{where}: expected {len(args)} items, got {len(value)}")
        return tuple(_decode(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(zip(args, value, strict=True)))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {k: _decode(args[1], v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(annotation, type):
        if issubclass(annotation, Record) and isinstance(value, dict):
            return annotation.from_json(value)
        if annotation is float and isinstance(value, str) and value in NON_FINITE:
            return NON_FINITE[value]
        if annotation is float and isinstance(value, int) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                raise RecordError(f"{where}: {str(value)[:20]}… is too large") from None
        if isinstance(value, annotation) and not (annotation is int and isinstance(value, bool)):
            return value
    raise RecordError(f"{where}: {value!r} is not {annotation}")


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _encode(value: Any) -> Any:
    if isinstance(value, Record):
        return {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    if isinstance(value, Mapping):
        return {str(k): _encode(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    return value


@dataclass(frozen=True)
class Record:
    """Base of all records: JSON out with ``to_json``, checked JSON in with ``from_json``."""

    def to_json(self) -> dict[str, Any]:
        """Returns the record as JSON-ready objects: no infinite number or NaN, see ``NON_FINITE``."""
        return typing.cast(dict[str, Any], _encode(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Rebuilds a record.

        Raises:
            SchemaError: its ``schema`` is not ``SCHEMA``.
            RecordError: a field is missing, unknown or of another type; the text names it.
        """
        hints = _hints(typing.cast(Any, cls))
        fields = {f.name: f for f in dataclasses.fields(cls)}
        if "schema" in fields and data.get("schema", SCHEMA) != SCHEMA:
            raise SchemaError(f"its schema is {str(data['schema'])[:20]}, this version reads {SCHEMA}")
        if unknown := sorted(set(data) - set(fields)):
            raise RecordError(f"{cls.__name__}: unknown field {unknown[0]!r}")
        values = {}
        for name, spec in fields.items():
            if name in data:
                values[name] = _decode(hints[name], data[name], f"{cls.__name__}.{name}")
            elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
                raise RecordError(f"{cls.__name__}: field {name!r} is missing")
        return cls(**values)

"""JSON Schema of what is published, derived from the records so that the two cannot drift apart."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from kernelllm_judge.core.records import SCHEMA, Record, Verdict
from kernelllm_runtime.record import NON_FINITE
from pytest_kernelllm.report.read import Report

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(annotation: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a record class, or of any annotation that records use."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return {}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(arg) for arg in args]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": schema_of(args[0])}
        return {
            "type": "array",
            "prefixItems": [schema_of(a) for a in args],
            "minItems": len(args),
            "maxItems": len(args),
        }
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema_of(args[1])}
    if isinstance(annotation, type) and issubclass(annotation, Record):
        hints = typing.get_type_hints(annotation)
        properties = {field.name: schema_of(hints[field.name]) for field in dataclasses.fields(annotation)}
        if "schema" in properties:
            properties["schema"] = {"const": SCHEMA}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    if annotation is float:
        return {"anyOf": [{"type": "number"}, {"enum": list(NON_FINITE)}]}
    names = {bool: "boolean", int: "integer", str: "string", type(None): "null"}
    return {"type": names[annotation]}


def report_schema() -> dict[str, Any]:
    """Returns the schema of ``--kernelllm-report``."""
    return {"$schema": DRAFT, "title": "pytest-kernelllm report", **schema_of(Report)}


def verdict_schema() -> dict[str, Any]:
    """Returns the schema of ``kernelllm verify --json``; with ``--pairs`` each line has a ``name`` besides."""
    return {"$schema": DRAFT, "title": "pytest-kernelllm verdict", **schema_of(Verdict)}

"""Turns entries of earlier formats into today's form, so that a store of an earlier version can still be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelllm_judge.core.records import SCHEMA

_NAMES = {"screen": "static check", "twin": "near-duplicate"}
"""Today's names of stages and rules by those of format 1."""


def upgrade(kind: str, body: Any, version: int) -> Any:
    """Returns the body of an entry of format 1, 2 or 3 as today's format has it; what is damaged in it stays so.

    In format 1, a candidate had an ``index``, which depended on the run. A stage and two rules had other names. Verdicts
    had no terms: those that were given under others than the defaults name these in their policy, and match no key of
    today's. Verdicts of all three have an earlier schema, which lacks only fields with defaults.
    """
    if not isinstance(body, Mapping):
        return body
    if kind == "rendering" and isinstance(body.get("candidate"), Mapping):
        return {**body, "candidate": _without_index(body["candidate"])} if version == 1 else body
    if (
        kind == "verdict"
        and isinstance(body.get("candidate"), Mapping)
        and isinstance(body.get("verdict"), Mapping)
    ):
        body = {
            **body,
            "verdict": {**body["verdict"], "schema": _schema(body["verdict"])},
            "schema": _schema(body),
        }
        return _renamed_verdict(body) if version == 1 else body
    return body


def _renamed_verdict(body: Mapping[str, Any]) -> dict[str, Any]:
    verdict = dict(body["verdict"])
    verdict |= {key: _renamed(verdict[key]) for key in ("stage", "rule") if key in verdict}
    return {**body, "candidate": _without_index(body["candidate"]), "verdict": verdict}


def _renamed(name: Any) -> Any:
    return _NAMES.get(name, name) if isinstance(name, str) else name


def _without_index(candidate: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in candidate.items() if name != "index"}


def _schema(record: Mapping[str, Any]) -> Any:
    schema = record.get("schema", 1)
    return SCHEMA if schema in (1, 2) else schema

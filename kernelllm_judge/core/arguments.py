"""Puts the leaves of arguments together again: the judge and its workers know arguments by the names of their leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments by parameter name, with tuples of what is named ``x[0]``, ``x[1]``, …; see ``kernelllm_runtime.leaves``."""
    found = _Parts()
    for name, value in leaves.items():
        parameter, *indices = name.replace("]", "").split("[")
        inner = found
        for index in indices:
            inner = inner.setdefault(parameter, _Parts())
            parameter = index
        inner[parameter] = value
    return {name: _tuples(value) for name, value in found.items()}


class _Parts(dict[str, Any]):
    """What a tuple holds, by index."""


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value.values())) if type(value) is _Parts else value

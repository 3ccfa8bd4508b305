"""Puts the leaves of arguments together again: the judge and its workers know arguments by the names of their leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments by parameter name, with tuples of what is named ``x[0]``, ``x[1]``, … and dicts of ``x['key']``.

    See ``kernelllm_runtime.leaves``.
    """
    found = _Parts()
    for name, value in leaves.items():
        parameter, *indices = name.replace("]", "").split("[")
        inner = found
        for index in indices:
            inner = inner.setdefault(parameter, _Parts())
            parameter = index
        inner[parameter] = value
    return {name: _whole(value) for name, value in found.items()}


class _Parts(dict[str, Any]):
    """What a tuple holds, by index, or a dict, by its keys in quotes."""


def _whole(value: Any) -> Any:
    if type(value) is not _Parts:
        return value
    if next(iter(value)).startswith("'"):
        return {key.strip("'"): _whole(part) for key, part in value.items()}
    return tuple(map(_whole, value.values()))

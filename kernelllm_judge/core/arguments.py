"""Puts the leaves of arguments together again: the judge and its workers know arguments by the names of their leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelllm_runtime.leaves import KIND

_KINDS: Mapping[str, Any] = {"tuple": tuple, "list": list, "dict": dict}


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments by parameter name, with tuples of what is named ``x[0]``, ``x[1]``, … and dicts of ``x['key']``.

    What is named ``x.__class__`` says that they are held by a list, or that nothing is held. See ``kernelllm_runtime.leaves``.
    """
    found = _Parts()
    for name, value in leaves.items():
        *outer, last = name.removesuffix(KIND).replace("]", "").split("[")
        inner = found
        for index in outer:
            inner = inner.setdefault(index, _Parts())
        if name.endswith(KIND):
            inner.setdefault(last, _Parts()).kind = value
        else:
            inner[last] = value
    return {name: _whole(value) for name, value in found.items()}


class _Parts(dict[str, Any]):
    """What a tuple or list holds, by index, or a dict, by its keys in quotes."""

    kind: str = ""


def _whole(value: Any) -> Any:
    if type(value) is not _Parts:
        return value
    if any(key.startswith("'") for key in value):
        return {key.strip("'"): _whole(part) for key, part in value.items()}
    return _KINDS[value.kind or "tuple"](map(_whole, value.values()))

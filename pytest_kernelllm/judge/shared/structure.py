"""Flattens outputs to a list of leaves and a JSON description of how they nest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flatten(value: Any) -> tuple[Any, list[Any]]:
    """Returns the structure of nested tuples, lists and mappings, and their leaves, depth first.

    In the structure a leaf is ``"*"`` and None is None: ``(a, {"h": b})`` has ``["tuple", "*", ["dict",
    "h", "*"]]``.
    """
    leaves: list[Any] = []
    return _walk(value, leaves), leaves


def _walk(item: Any, leaves: list[Any]) -> Any:
    # Not nested in `flatten`: a reference cycle would keep the leaves alive, and GPU memory with them.
    if item is None:
        return None
    if isinstance(item, tuple | list):
        return ["tuple" if isinstance(item, tuple) else "list", *(_walk(part, leaves) for part in item)]
    if isinstance(item, Mapping):
        return ["dict", *(part for key in item for part in (str(key), _walk(item[key], leaves)))]
    leaves.append(item)
    return "*"

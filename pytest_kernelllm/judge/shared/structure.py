"""Outputs as a flat list of leaves and a JSON description of how they nest. Shared by judge and worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flatten(value: Any) -> tuple[Any, list[Any]]:
    """Leaves of tuples, lists and mappings, depth first, and their structure.

    A leaf is ``"*"`` in the structure, None is None: ``(a, {"h": b})`` is ``["tuple", "*", ["dict", "h", "*"]]``.
    """
    leaves: list[Any] = []
    return _walk(value, leaves), leaves


def _walk(item: Any, leaves: list[Any]) -> Any:
    # A function of its own: one nested in `flatten` would keep the leaves in a cycle, and GPU memory with them.
    if item is None:
        return None
    if isinstance(item, tuple | list):
        return ["tuple" if isinstance(item, tuple) else "list", *(_walk(part, leaves) for part in item)]
    if isinstance(item, Mapping):
        return ["dict", *(part for key in item for part in (str(key), _walk(item[key], leaves)))]
    leaves.append(item)
    return "*"

"""Outputs as a flat list of leaves and a JSON description of how they nest. Shared by judge and worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flatten(value: Any) -> tuple[Any, list[Any]]:
    """Leaves of tuples, lists and mappings, depth first, and their structure.

    A leaf is ``"*"`` in the structure, None is None: ``(a, {"h": b})`` is ``["tuple", "*", ["dict", "h", "*"]]``.
    """
    leaves: list[Any] = []

    def walk(item: Any) -> Any:
        if item is None:
            return None
        if isinstance(item, tuple | list):
            return ["tuple" if isinstance(item, tuple) else "list", *(walk(part) for part in item)]
        if isinstance(item, Mapping):
            return ["dict", *(part for key in item for part in (str(key), walk(item[key])))]
        leaves.append(item)
        return "*"

    return walk(value), leaves

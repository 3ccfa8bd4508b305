"""Flattens outputs to a list of leaves and a JSON description of how they nest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flatten(value: Any) -> tuple[Any, list[Any]]:
    """Returns the structure of nested tuples, lists and mappings, and their leaves, depth first.

    A leaf is ``"*"`` in the structure, None is None: ``(a, {"h": b})`` is ``["tuple", "*", ["dict", "h", "*"]]``. Other
    types than these go by their full names: what ``x.max(0)`` returns is ``["torch.return_types.max", "*", "*"]``.
    """
    leaves: list[Any] = []
    return _walk(value, leaves), leaves


def _walk(item: Any, leaves: list[Any]) -> Any:
    # Not nested in `flatten`: a reference cycle would keep the leaves alive, and GPU memory with them.
    if item is None:
        return None
    if isinstance(item, tuple | list):
        return [_kind(item), *(_walk(part, leaves) for part in item)]
    if isinstance(item, Mapping):
        return [_kind(item), *(part for key in item for part in (str(key), _walk(item[key], leaves)))]
    leaves.append(item)
    return "*"


def _kind(item: Any) -> str:
    kind = type(item)
    return kind.__name__ if kind in (tuple, list, dict) else f"{kind.__module__}.{kind.__qualname__}"

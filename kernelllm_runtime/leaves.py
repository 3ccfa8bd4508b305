"""Takes tuples, lists and dicts among the arguments of a call apart into leaves with names of their own, as domains list them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

KIND = ".__class__"
"""End of the name of a leaf that says what holds others: ``list``."""


def leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    """Returns ``[("x", value)]``, or what a tuple, list or dict holds as ``x[0]``, ``x[1]``, … or ``x['key']``, …

    Before what a list holds there is ``("x.__class__", "list")``, so that it is told from a tuple, and in the place of what is
    empty ``"tuple"``, ``"list"`` or ``"dict"``. Dicts whose keys are no identifiers are leaves.
    """
    kind = type(value)
    parts: Iterable[tuple[Any, Any]]
    if kind is tuple or kind is list:
        parts = enumerate(value)
    elif kind is dict and all(isinstance(key, str) and key.isidentifier() for key in value):
        parts = value.items()
    else:
        return [(name, value)]
    found = [leaf for key, part in parts for leaf in leaves(f"{name}[{key!r}]", part)]
    return found if found and kind is not list else [(name + KIND, kind.__name__), *found]


def all_leaves(values: Iterable[Any]) -> list[Any]:
    """Returns the leaves of several values, in order."""
    return [leaf for value in values for _, leaf in leaves("", value)]


def parameter_of(leaf: str) -> str:
    """Returns the parameter that a leaf belongs to."""
    return leaf.removesuffix(KIND).partition("[")[0]

"""Takes tuples and dicts among the arguments of a call apart into leaves with names of their own, as domains list them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    """Returns ``[("x", value)]``, or what a tuple or a dict holds as ``x[0]``, ``x[1]``, … or ``x['key']``, …

    Those that are empty, and dicts whose keys are no identifiers, are leaves.
    """
    parts: Iterable[tuple[Any, Any]] = ()
    if type(value) is tuple:
        parts = enumerate(value)
    elif type(value) is dict and all(isinstance(key, str) and key.isidentifier() for key in value):
        parts = value.items()
    found = [leaf for key, part in parts for leaf in leaves(f"{name}[{key!r}]", part)]
    return found or [(name, value)]


def all_leaves(values: Iterable[Any]) -> list[Any]:
    """Returns the leaves of several values, in order."""
    return [leaf for value in values for _, leaf in leaves("", value)]


def parameter_of(leaf: str) -> str:
    """Returns the parameter that a leaf belongs to."""
    return leaf.partition("[")[0]

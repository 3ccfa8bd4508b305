"""Takes tuples among the arguments of a call apart into leaves with names of their own, as domains list them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    """Returns ``[("x", value)]``, or ``x[0]``, ``x[1]``, … with what a tuple holds; an empty tuple is a leaf."""
    if type(value) is not tuple or not value:
        return [(name, value)]
    return [leaf for index, part in enumerate(value) for leaf in leaves(f"{name}[{index}]", part)]


def all_leaves(values: Iterable[Any]) -> list[Any]:
    """Returns the leaves of several values, in order."""
    return [leaf for value in values for _, leaf in leaves("", value)]


def parameter_of(leaf: str) -> str:
    """Returns the parameter that a leaf belongs to."""
    return leaf.partition("[")[0]

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
    if (parts := _parts(value)) is None:
        return [(name, value)]
    found = [leaf for key, part in parts for leaf in leaves(f"{name}[{key!r}]", part)]
    told = found and type(value) is not list
    return found if told else [(name + KIND, type(value).__name__), *found]


def containers(name: str, value: Any) -> list[tuple[str, Any]]:
    """Returns the tuples, lists and dicts that ``leaves`` takes apart, with their names, each before those that it holds."""
    if (parts := _parts(value)) is None:
        return []
    return [(name, value), *(each for key, part in parts for each in containers(f"{name}[{key!r}]", part))]


def _parts(value: Any) -> list[tuple[Any, Any]] | None:
    if type(value) is tuple or type(value) is list:
        return list(enumerate(value))
    if type(value) is dict and all(isinstance(key, str) and key.isidentifier() for key in value):
        return list(value.items())
    return None


def all_leaves(values: Iterable[Any]) -> list[Any]:
    """Returns the leaves of several values, in order."""
    return [leaf for value in values for _, leaf in leaves("", value)]


def parameter_of(leaf: str) -> str:
    """Returns the parameter that a leaf belongs to."""
    return leaf.removesuffix(KIND).partition("[")[0]

"""Finds the numbers in Inductor's code that are attributes of the module, such as an epsilon.

The module is traced again with its float attributes changed: a literal that changes from an attribute's value to
its new value is that attribute, if nothing else changes. The kernel takes it as an argument and serves every value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kernelllm_judge.render.inductor.names import as_identifier
from kernelllm_judge.render.lower import device_names
from pytest_kernelllm.generate.inductor.trace import TraceError

_MOST = 6
"""More float attributes than this are not tried one by one: each costs another trace."""
_LITERAL = re.compile(r"tl\.full\((\[[1, ]*\]), (-?[\d.]+(?:e[+-]?\d+)?), tl\.float32\)")
"""A float constant as Inductor writes it."""


@dataclass(frozen=True)
class NamedScalars:
    """A text in which numbers are replaced by names."""

    source: str
    scalars: dict[str, str]
    """Attributes by dotted name behind ``self.``: ``{"eps": "self.eps", "net_1_eps": "self.net.1.eps"}``."""


def free_scalars(
    source: str, floats: Mapping[str, float], again: Callable[[Mapping[str, float]], str]
) -> NamedScalars:
    """Replaces the literals of float attributes by names if another trace proves that they are equal.

    Args:
        source: the text with the module's own values.
        floats: the float attributes of the module by dotted name.
        again: returns the text with other values of some attributes, by dotted name.
    """
    values = {k: v for k, v in floats.items() if any(float(m[2]) == v for m in _LITERAL.finditer(source))}
    others = {k: v * 1.375 + 0.0078125 * n for n, (k, v) in enumerate(values.items(), 1)}
    places = _places(source, values, others, again) if values else {}
    if places is None and 1 < len(values) <= _MOST:
        each = (_places(source, {k: values[k]}, {k: others[k]}, again) for k in values)
        places = {number: path for found in each for number, path in (found or {}).items()}
    taken = {*re.findall(r"\w+", source), *device_names()}
    names: dict[str, str] = {}
    for path in values:
        if path in (places or {}).values():
            names[path] = _name(path, taken)
            taken.add(names[path])
    replaced = {number: names[path] for number, path in (places or {}).items()}
    count = iter(range(len(source)))

    def name_it(match: re.Match[str]) -> str:
        name = replaced.get(next(count))
        return match[0] if name is None else f"tl.full({match[1]}, {name}, tl.float32)"

    return NamedScalars(_LITERAL.sub(name_it, source), {name: f"self.{path}" for path, name in names.items()})


def _name(path: str, taken: Collection[str]) -> str:
    """Returns a name for an attribute that the text does not use: ``net_1_eps`` for ``net.1.eps``."""
    name = as_identifier(path)
    while name in taken:
        name += "_"
    return name


def _places(
    source: str,
    values: Mapping[str, float],
    others: Mapping[str, float],
    again: Callable[[Mapping[str, float]], str],
) -> dict[int, str] | None:
    """Returns the attribute of each literal, by its number; None if anything else changes with the attributes."""
    try:
        changed = again(others)
    except TraceError:
        return None
    if _LITERAL.sub("", source) != _LITERAL.sub("", changed):
        return None
    places = {}
    pairs = zip(_LITERAL.finditer(source), _LITERAL.finditer(changed), strict=True)
    for number, (before, after) in enumerate(pairs):
        if before[0] != after[0]:
            found = (k for k, v in values.items() if (float(before[2]), float(after[2])) == (v, others[k]))
            path = next(found, None)
            if path is None:
                return None
            places[number] = path
    return places

"""Finds the numbers in Inductor's code that are attributes of the module, such as an epsilon.

The module is traced again with another value of the attribute. If exactly the literals with the old value
change to the new one, the kernel can take the attribute as an argument and serves every value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pytest_kernelllm.generate.inductor.trace import TraceError
from pytest_kernelllm.generate.render.inductor.names import as_identifier

_MOST = 6
"""If a module has more float attributes none is tried, because each needs another trace."""
_LITERAL = re.compile(r"tl\.full\((\[[1, ]*\]), (-?[\d.]+(?:e[+-]?\d+)?), tl\.float32\)")
"""A float constant as Inductor writes it."""


@dataclass(frozen=True)
class NamedScalars:
    """A text in which numbers are replaced by names."""

    source: str
    scalars: dict[str, str]
    """Attributes by dotted name behind ``self.``: ``{"eps": "self.eps", "net_1_eps": "self.net.1.eps"}``."""


def free_scalars(
    source: str, floats: Mapping[str, float], again: Callable[[str, float], str]
) -> NamedScalars:
    """Replaces the literals of float attributes by names if a second trace proves that they are equal.

    Args:
        source: the text with the module's own values.
        floats: the float attributes of the module by dotted name.
        again: returns the text with another value of one attribute, which it takes by dotted name.
    """
    candidates = {k: v for k, v in floats.items() if any(float(m[2]) == v for m in _LITERAL.finditer(source))}
    if len(candidates) > _MOST:
        return NamedScalars(source, {})
    taken = set(re.findall(r"\w+", source))
    scalars: dict[str, str] = {}
    replaced: dict[int, str] = {}
    for path, value in candidates.items():
        other = value * 1.375 + 0.0078125
        try:
            places = _places(source, again(path, other), value, other)
        except TraceError:
            continue
        if places:
            name = _name(path, taken)
            taken.add(name)
            scalars[name] = f"self.{path}"
            replaced |= dict.fromkeys(places, name)
    count = iter(range(len(source)))

    def name_it(match: re.Match[str]) -> str:
        name = replaced.get(next(count))
        return match[0] if name is None else f"tl.full({match[1]}, {name}, tl.float32)"

    return NamedScalars(_LITERAL.sub(name_it, source), scalars)


def _name(path: str, taken: Collection[str]) -> str:
    """Returns a name for an attribute that the text does not use: ``net_1_eps`` for ``net.1.eps``."""
    name = as_identifier(path)
    while name in taken:
        name += "_"
    return name


def _places(source: str, changed: str, value: float, other: float) -> list[int]:
    """Returns the indices of literals that changed from ``value`` to ``other``; empty if anything else differs."""
    if _LITERAL.sub("", source) != _LITERAL.sub("", changed):
        return []
    places = []
    pairs = zip(_LITERAL.finditer(source), _LITERAL.finditer(changed), strict=True)
    for number, (before, after) in enumerate(pairs):
        if before[0] != after[0]:
            if float(before[2]) != value or float(after[2]) != other:
                return []
            places.append(number)
    return places

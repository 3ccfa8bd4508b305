"""Find out which numbers in a compiled text are attributes of the module, such as an epsilon.

The module is traced again with the attribute changed: if exactly the literals with its value change to the
new value, the kernel can take it as an argument and serves every value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pytest_kernelllm.core.records import Domain
from pytest_kernelllm.generate.inductor.trace import TraceError

_MOST = 6
"""More float attributes than this are not tried: each costs another trace."""
_LITERAL = re.compile(r"tl\.full\((\[[1, ]*\]), (-?[\d.]+(?:e[+-]?\d+)?), tl\.float32\)")
"""Where Inductor writes a float constant."""


@dataclass(frozen=True)
class Free:
    """A text whose numbers have names."""

    source: str
    scalars: dict[str, str]
    """``{"eps": "self.eps"}``"""


def free_scalars(source: str, domain: Domain, again: Callable[[str, float], str]) -> Free:
    """Replace the literals of float attributes by names, where a second trace proves it.

    Args:
        source: the text with the module's own values.
        domain: its ``attributes`` name the candidates.
        again: the text with one attribute, by dotted name, at another value.
    """
    floats = {k: v for k, v in domain.attributes.items() if type(v) is float}
    candidates = {k: v for k, v in floats.items() if any(float(m[2]) == v for m in _LITERAL.finditer(source))}
    if len(candidates) > _MOST:
        return Free(source, {})
    scalars: dict[str, str] = {}
    replaced: dict[int, str] = {}
    for path, value in candidates.items():
        other = value * 1.375 + 0.0078125
        try:
            places = _places(source, again(path, other), value, other)
        except TraceError:
            continue
        if places:
            name = re.sub(r"\W+", "_", path)
            scalars[name] = f"self.{path}"
            replaced |= dict.fromkeys(places, name)
    count = iter(range(len(source)))

    def name_it(match: re.Match[str]) -> str:
        name = replaced.get(next(count))
        return match[0] if name is None else f"tl.full({match[1]}, {name}, tl.float32)"

    return Free(_LITERAL.sub(name_it, source), scalars)


def _places(source: str, changed: str, value: float, other: float) -> list[int]:
    """Numbers of the literals that changed from ``value`` to ``other``; empty if anything else differs."""
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

"""Names what expressions over a completion's ``self`` reach: its own attributes, the items of its lists, and its layers."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from dataclasses import dataclass

from kernelllm_judge.core.parts import Container, Parts
from kernelllm_judge.render.modelnew.matches import Match
from kernelllm_judge.render.modelnew.settings import Setting
from kernelllm_judge.render.modelnew.target_layers import TargetLayers


@dataclass(frozen=True)
class OwnNames:
    """The names of one module of a completion."""

    path: str
    """The module's own, below ``ModelNew``; empty for that itself."""
    settings: Mapping[str, Setting]
    """What its constructor sets."""
    parts: Parts
    """The parts of the target."""
    layers: TargetLayers
    match: Match

    def full(self, name: str) -> str:
        """Returns a name of the module as one of ``ModelNew``."""
        return f"{self.path}.{name}" if self.path else name

    def read(self, node: ast.expr) -> str | None:
        """Returns the dotted name, relative to the completion's ``self``, of what an expression reads."""
        if (own := self._own.name(node)) is not None:
            return own
        name = self.parts.name(node, self.path)
        return None if name is None else name.removeprefix(self.path).removeprefix(".")

    @functools.cached_property
    def _own(self) -> Parts:
        """The completion's own lists of modules."""
        held = {name: range(setting.parts) for name, setting in self.settings.items() if setting.parts}
        return Parts({name: Container("list", tuple(map(str, parts))) for name, parts in held.items()})

    def items(self, name: str) -> int:
        """Returns how many modules the completion puts into the list of that name."""
        setting = self.settings.get(name)
        return setting.parts if setting is not None else 0

    def items_of(self, node: ast.expr) -> int:
        """Returns how many modules the completion puts into the list that an expression reaches."""
        return self.items(self.read(node) or "")

    def layer(self, name: str) -> str:
        """Returns the target's name for a layer by the completion's name for it."""
        for prefix in prefixes(name):
            if theirs := self.match.names.get(self.full(prefix)):
                return theirs + name[len(prefix) :]
        return self.full(name)

    def layers_of(self, node: ast.expr) -> list[str]:
        """Returns the parts of a list of layers that an expression over ``self`` reaches."""
        name = self.read(node)
        return self.layers.listed(self.layer(name)) if name else []


def prefixes(name: str) -> list[str]:
    """Returns ``["a.b.c", "a.b", "a"]`` for ``a.b.c``."""
    words = name.split(".")
    return [".".join(words[:n]) for n in range(len(words), 0, -1)]

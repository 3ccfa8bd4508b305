"""What a candidate gets as ``self``: the target's values by name, and none of its code."""

from __future__ import annotations

import functools
from collections.abc import ItemsView, Iterator, KeysView, Sequence, ValuesView
from typing import Any


class StandIn:
    """A module's parameters, buffers, plain attributes and submodules."""

    def __init__(self, values: dict[str, Any]) -> None:
        """Take the values as attributes."""
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """Say in words what is missing."""
        raise AttributeError(f"the target has no plain attribute, parameter or buffer `{name}`")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: a worker does not hold the target's code."""
        raise TypeError(
            "a kernel cannot call the target's own submodules; only stock GEMM and convolution layers"
        )

    def get_submodule(self, target: str) -> Any:
        """The part with a dotted name, as of ``nn.Module``; here for parameters and buffers, too."""
        return functools.reduce(getattr, target.split("."), self) if target else self

    get_parameter = get_submodule
    get_buffer = get_submodule


class Container(StandIn):
    """A module whose parts are reached by subscript."""

    _parts: dict[str, Any]

    def __init__(self, values: dict[str, Any], names: Sequence[str]) -> None:
        """``names`` are those of the parts, in order."""
        super().__init__({**values, "_parts": {name: values.get(name) for name in names}})

    def __len__(self) -> int:
        """How many parts there are."""
        return len(self._parts)


class ListStandIn(Container):
    """``nn.Sequential``, ``nn.ModuleList`` or ``nn.ParameterList``."""

    def __getitem__(self, index: int | slice) -> Any:
        """One part, or a list of several."""
        if isinstance(index, slice):
            return ListStandIn(self._parts, list(self._parts)[index])
        return list(self._parts.values())[index]

    def __iter__(self) -> Iterator[Any]:
        """The parts."""
        return iter(self._parts.values())


class DictStandIn(Container):
    """``nn.ModuleDict`` or ``nn.ParameterDict``."""

    def __getitem__(self, key: str) -> Any:
        """The part under a key."""
        return self._parts[key]

    def __iter__(self) -> Iterator[str]:
        """The keys."""
        return iter(self._parts)

    def __contains__(self, key: str) -> bool:
        """Whether there is a part under a key."""
        return key in self._parts

    def keys(self) -> KeysView[str]:
        """The keys."""
        return self._parts.keys()

    def values(self) -> ValuesView[Any]:
        """The parts."""
        return self._parts.values()

    def items(self) -> ItemsView[str, Any]:
        """Keys and parts."""
        return self._parts.items()


def stand_in(values: dict[str, Any], container: dict[str, Any] | None) -> StandIn:
    """The stand-in for one module.

    Args:
        values: its parameters, buffers, plain attributes and submodules by name.
        container: ``{"kind": "list", "names": ["0", "1"]}`` where its parts are reached by subscript; kind ``dict`` for keys.
    """
    if container is None:
        return StandIn(values)
    return (ListStandIn if container["kind"] == "list" else DictStandIn)(values, container["names"])

"""What a candidate gets as ``self``: the target's values by name, and none of its code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, ItemsView, Iterator, KeysView, Sequence, ValuesView
from typing import Any

import torch

VENDOR_LAYERS = frozenset(
    f"torch.nn.modules.{name}"
    for name in (
        "linear.Linear",
        "linear.Bilinear",
        "conv.Conv1d",
        "conv.Conv2d",
        "conv.Conv3d",
        "conv.ConvTranspose1d",
        "conv.ConvTranspose2d",
        "conv.ConvTranspose3d",
        "sparse.Embedding",
    )
)
"""Stock layers that a kernel may call on ``self``: vendor libraries' GEMMs, convolutions and look-ups."""


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


def build(
    tree: dict[str, Any],
    decode: Callable[[Any], Any],
    tensors: dict[str, torch.Tensor],
    prefix: str = "self.",
) -> Any:
    """Builds the stand-in for a module; stock layers become layers of torch.

    Args:
        tree: the judge's description: ``class``, ``container``, ``values`` by name, and ``children`` by name.
        decode: converts a value of the description.
        tensors: receives every tensor, by its dotted name after ``prefix``.
        prefix: the module's own dotted name, with a dot.
    """
    values = {name: decode(value) for name, value in tree["values"].items()}
    children = {
        name: build(child, decode, tensors, f"{prefix}{name}.") for name, child in tree["children"].items()
    }
    tensors |= {prefix + k: v for k, v in values.items() if isinstance(v, torch.Tensor)}
    if tree["class"] not in VENDOR_LAYERS:
        return stand_in(values | children, tree["container"])
    package, _, name = tree["class"].rpartition(".")
    cls = getattr(sys.modules[package], name)
    layer = cls.__new__(cls)
    torch.nn.Module.__init__(layer)
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            value = torch.nn.Parameter(value, requires_grad=False)
            tensors[prefix + name] = value
        setattr(layer, name, value)
    return layer

"""What a candidate gets as ``self``: the target's values by name, and none of its code."""

from __future__ import annotations

import functools
import sys
from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Sequence,
    ValuesView,
)
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


class Values:
    """A configuration object's values."""

    def __init__(self, values: dict[str, Any]) -> None:
        """Take the values as attributes."""
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """Say in words what is missing."""
        raise AttributeError(_missing(name))


class StandIn(torch.nn.Module):
    """A module's parameters, buffers, plain attributes and submodules.

    It is a module, and its parameters are such, because a kernel could otherwise tell whether it is being judged. What
    it asks for and only the target has is recorded: an exception could be caught.
    """

    def __init__(self, values: dict[str, Any], withheld: Collection[str], asked: list[str]) -> None:
        """Takes values as attributes.

        Args:
            values: by name; Parameters, other tensors (buffers), modules, plain values.
            withheld: names of what the target has beside these.
            asked: receives in words what only the target has.
        """
        super().__init__()
        vars(self)["_withheld"], vars(self)["_asked"] = frozenset(withheld), asked
        for name, value in values.items():
            if isinstance(value, torch.nn.Parameter):
                self._parameters[name] = value
            elif isinstance(value, torch.Tensor):
                self._buffers[name] = value
            elif isinstance(value, torch.nn.Module):
                self._modules[name] = value
            else:
                vars(self)[name] = value

    def __getattr__(self, name: str) -> Any:
        """Finds a tensor or submodule; says in words what is missing."""
        for held in (self._parameters, self._buffers, self._modules):
            if name in held:
                return held[name]
        if name in self._withheld:
            self._asked.append(f"`self.{name}`, which is no value that the original's forward reads")
        raise AttributeError(_missing(name))

    def __repr__(self) -> str:
        """Records that a kernel asks for its target's text."""
        self._asked.append("the text of a module")
        return "a module"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: a worker does not hold the target's code."""
        self._asked.append("a result of the target's own code")
        raise TypeError(
            "a kernel cannot call the target's own submodules; only stock GEMM and convolution layers"
        )

    def get_submodule(self, target: str) -> Any:
        """The part with a dotted name, as of ``nn.Module``; here for parameters and buffers, too."""
        return functools.reduce(getattr, target.split("."), self) if target else self

    get_parameter = get_submodule
    get_buffer = get_submodule


class ReadOnlyList(list[Any]):
    """A list of the target's. Where a kernel would change it, that is an error, and recorded."""

    def __init__(self, values: Iterable[Any], asked: list[str]) -> None:
        """``asked``: see ``StandIn``."""
        super().__init__(values)
        self._asked = asked

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        self._asked.append("a change of a list of the target's")
        raise TypeError("a kernel cannot change a list of the target's")

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse


def _missing(name: str) -> str:
    return f"the target has no plain attribute, parameter or buffer `{name}`"


class Container(StandIn):
    """A module whose parts are reached by subscript."""

    _parts: dict[str, Any]

    def __init__(
        self, values: dict[str, Any], withheld: Collection[str], asked: list[str], names: Sequence[str]
    ) -> None:
        """``names`` are those of the parts, in order."""
        super().__init__(values, withheld, asked)
        vars(self)["_parts"] = {name: values.get(name) for name in names}

    def __len__(self) -> int:
        """How many parts there are."""
        return len(self._parts)


class ListStandIn(Container):
    """``nn.Sequential``, ``nn.ModuleList`` or ``nn.ParameterList``."""

    def __getitem__(self, index: int | slice) -> Any:
        """One part, or a list of several."""
        if isinstance(index, slice):
            return ListStandIn(self._parts, self._withheld, self._asked, list(self._parts)[index])
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


def build(
    tree: dict[str, Any],
    decode: Callable[[Any], Any],
    tensors: dict[str, torch.Tensor],
    asked: list[str],
    prefix: str = "self.",
) -> Any:
    """Builds the stand-in for a module; stock layers become layers of torch.

    Args:
        tree: the judge's description: ``class``, ``training``, ``container`` (``{"kind": "list", "names": ["0", "1"]}`` where
            parts are reached by subscript; kind ``dict`` for keys), ``values`` by name, ``withheld``, and ``children``.
        decode: converts a value of the description.
        tensors: receives every tensor, by its dotted name after ``prefix``.
        asked: receives in words what a kernel asks for and only the target has.
        prefix: the module's own dotted name, with a dot.
    """
    values = {name: decode(value) for name, value in tree["values"].items()}
    tensors |= {prefix + k: v for k, v in values.items() if isinstance(v, torch.Tensor)}
    values |= {
        name: build(child, decode, tensors, asked, f"{prefix}{name}.")
        for name, child in tree["children"].items()
    }
    if not tree["class"]:
        return Values(values)
    container, withheld = tree["container"], tree["withheld"]
    made: Any
    if tree["class"] in VENDOR_LAYERS:
        package, _, name = tree["class"].rpartition(".")
        cls = getattr(sys.modules[package], name)
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        for name, value in values.items():
            setattr(made, name, value)
    elif container is None:
        made = StandIn(values, withheld, asked)
    else:
        kind = ListStandIn if container["kind"] == "list" else DictStandIn
        made = kind(values, withheld, asked, container["names"])
    vars(made)["training"] = tree["training"]
    return made

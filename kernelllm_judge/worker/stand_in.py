# ruff: noqa: SIM905 (words are easier to read and to sort than quoted strings)
"""What a candidate gets as ``self``: the target's values by name, and none of its code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import Any

import torch

from kernelllm_judge.shared.buffers import view

VENDOR_LAYERS = frozenset(
    f"torch.nn.modules.{name}"
    for name in """
        linear.Linear linear.Bilinear conv.Conv1d conv.Conv2d conv.Conv3d conv.ConvTranspose1d
        conv.ConvTranspose2d conv.ConvTranspose3d sparse.Embedding
    """.split()
)
"""Stock layers that a kernel may call on ``self``: vendor libraries' GEMMs, convolutions and look-ups."""


def stand_in(
    base: type[torch.nn.Module],
    name: str,
    values: dict[str, Any],
    withheld: Collection[str],
    asked: list[str],
) -> torch.nn.Module:
    """Returns a module with a target's parameters, buffers, plain attributes and submodules.

    It looks like the target's: with parameters, with the name of its class, and without attributes of ours. Otherwise a
    kernel could tell whether it is being judged. What it asks for and only the target has is recorded: an exception could
    be caught.

    Args:
        values: by name; Parameters, other tensors (buffers), modules, plain values.
        withheld: names of what the target has beside these.
        asked: receives in words what only the target has.
    """

    class StandIn(base):  # type: ignore[misc, valid-type]
        def __getattr__(self, name: str) -> Any:
            for held in (self._parameters, self._buffers, self._modules):
                if name in held:
                    return held[name]
            raise _missing(name, withheld, asked)

        def __repr__(self) -> str:
            asked.append("the text of a module")
            return "a module"

        def _apply(self, *args: Any, **kwargs: Any) -> Any:
            asked.append("a change of a module's dtype or device")
            raise TypeError("a kernel cannot change the target's modules")

    StandIn.__name__ = name
    if base.forward is torch.nn.Module.forward:  # it is no stock layer
        StandIn.forward = _refusing(
            asked,
            "a result of the target's own code",
            "a kernel cannot call the target's own submodules; only stock GEMM and convolution layers",
        )
    made = StandIn.__new__(StandIn)
    torch.nn.Module.__init__(made)
    hold(made, values)
    return made


def hold(made: torch.nn.Module, values: dict[str, Any]) -> None:
    """Gives a module parameters, buffers, submodules and plain attributes, by the types of ``values``."""
    for name, value in values.items():
        if isinstance(value, torch.nn.Parameter):
            made._parameters[name] = value
        elif isinstance(value, torch.Tensor):
            made._buffers[name] = value
        elif isinstance(value, torch.nn.Module):
            made._modules[name] = value
        else:
            vars(made)[name] = value


def namespace(values: dict[str, Any], withheld: Collection[str], asked: list[str]) -> Any:
    """Returns an object with a configuration object's values; see ``stand_in``."""

    class Values:
        def __getattr__(self, name: str) -> Any:
            raise _missing(name, withheld, asked)

    made = Values()
    vars(made).update(values)
    return made


def read_only_list(values: Iterable[Any], asked: list[str]) -> list[Any]:
    """Returns a list of the target's. Where a kernel would change it, that is an error, and recorded."""
    refuse = _refusing(
        asked, "a change of a list of the target's", "a kernel cannot change a list of the target's"
    )
    made: list[Any] = type("list", (list,), dict.fromkeys(_CHANGES_OF_LISTS, refuse))(values)
    return made


_CHANGES_OF_LISTS = (
    *("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"),
    *("__setitem__", "__delitem__", "__iadd__", "__imul__"),
)


def _refusing(asked: list[str], what: str, error: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(what)
        raise TypeError(error)

    return refuse


def _missing(name: str, withheld: Collection[str], asked: list[str]) -> AttributeError:
    if name in withheld:
        asked.append(f"`self.{name}`, which is no value that the original's forward reads")
    return AttributeError(f"the target has no plain attribute, parameter or buffer `{name}`")


def list_of_parts(
    parts: dict[str, Any], name: str, withheld: Collection[str], asked: list[str]
) -> torch.nn.Module:
    """Returns a stand-in for ``nn.Sequential``, ``nn.ModuleList`` or ``nn.ParameterList``; see ``stand_in``."""

    class Parts(torch.nn.Module):
        def __len__(self) -> int:
            return len(parts)

        def __getitem__(self, index: int | slice) -> Any:
            if not isinstance(index, slice):
                return [*parts.values()][index]
            return list_of_parts({key: parts[key] for key in [*parts][index]}, name, withheld, asked)

        def __iter__(self) -> Iterator[Any]:
            return iter(parts.values())

    return stand_in(Parts, name, parts, withheld, asked)


def dict_of_parts(
    parts: dict[str, Any], name: str, withheld: Collection[str], asked: list[str]
) -> torch.nn.Module:
    """Returns a stand-in for ``nn.ModuleDict`` or ``nn.ParameterDict``; see ``stand_in``."""

    class Parts(torch.nn.Module):
        def __len__(self) -> int:
            return len(parts)

        def __getitem__(self, key: str) -> Any:
            return parts[key]

        def __iter__(self) -> Iterator[str]:
            return iter(parts)

        def __contains__(self, key: str) -> bool:
            return key in parts

        def keys(self) -> KeysView[str]:
            return parts.keys()

        def values(self) -> ValuesView[Any]:
            return parts.values()

        def items(self) -> ItemsView[str, Any]:
            return parts.items()

    return stand_in(Parts, name, parts, withheld, asked)


class Decoder:
    """Converts JSON from the judge to what a candidate gets: views of shared memory and plain values."""

    def __init__(self, asked: list[str]) -> None:
        """``asked`` receives in words what a kernel asks for and only the target has."""
        self.block = torch.empty(0)
        """The shared memory, once it is attached; on the meta device tensors have none."""
        self._asked = asked

    def tensor(self, buffer: dict[str, Any]) -> torch.Tensor:
        """Returns the tensor that a buffer's description means."""
        dtype = getattr(torch, buffer["dtype"])
        if self.block.is_meta:
            return torch.empty(buffer["shape"], dtype=dtype, device="meta")
        # Its version is not the block's.
        return view(self.block, buffer["offset"], buffer["shape"], dtype).data

    def value(self, value: Any) -> Any:
        """Returns what a JSON value means."""
        match value:
            case {"buffer": buffer, "requires_grad": required}:
                return torch.nn.Parameter(self.tensor(buffer), required)
            case {"buffer": buffer}:
                return self.tensor(buffer)
            case {"empty": shape, "of": dtype}:
                return torch.empty(shape, dtype=getattr(torch, dtype), device=self.block.device)
            case {"tuple": items}:
                return tuple(map(self.value, items))
            case {"list": items}:
                return read_only_list(map(self.value, items), self._asked)
            case {"dtype": dtype}:
                return getattr(torch, dtype)
            case {"float": number}:
                return float(number)
        return value


class Builder:
    """Builds the stand-in for a module; stock layers become layers of torch."""

    def __init__(
        self, decode: Callable[[Any], Any], tensors: dict[str, torch.Tensor], asked: list[str]
    ) -> None:
        """Prepares; modules are built when they are asked for.

        Args:
            decode: converts a value of the judge's description.
            tensors: receives every tensor, by its dotted name after ``self.``.
            asked: receives in words what a kernel asks for and only the target has.
        """
        self._decode, self._tensors, self._asked = decode, tensors, asked
        self._tied: dict[int, torch.Tensor] = {}
        """Tensors by where they begin: one with two names is one object."""
        self._built: dict[int, Any] = {}
        """Stand-ins by number, for the same reason."""

    def build(self, tree: dict[str, Any], prefix: str = "self.") -> Any:
        """Builds a stand-in.

        Args:
            tree: the judge's description: ``class``, ``training``, ``container`` (``{"kind": "list", "names": ["0", "1"]}``
                where parts are reached by subscript; kind ``dict`` for keys), ``values`` by name, ``withheld``,
                ``children``, and ``number``, which is the same for one object under two names.
            prefix: the module's own dotted name, with a dot.
        """
        values = {name: self._value(value) for name, value in tree["values"].items()}
        self._tensors |= {prefix + k: v for k, v in values.items() if isinstance(v, torch.Tensor)}
        values |= {name: self.build(child, f"{prefix}{name}.") for name, child in tree["children"].items()}
        if tree["number"] not in self._built:
            self._built[tree["number"]] = self._made(tree, values)
        return self._built[tree["number"]]

    def _value(self, value: Any) -> Any:
        if not isinstance(value, dict) or "buffer" not in value:
            return self._decode(value)
        start = value["buffer"]["offset"]
        if start not in self._tied:
            self._tied[start] = self._decode(value)
        return self._tied[start]

    def _made(self, tree: dict[str, Any], values: dict[str, Any]) -> Any:
        withheld, asked = frozenset(tree["withheld"]), self._asked
        if not tree["class"]:
            return namespace(values, withheld, asked)
        package, _, name = tree["class"].rpartition(".")
        if (container := tree["container"]) is not None:
            make = list_of_parts if container["kind"] == "list" else dict_of_parts
            made = make({part: values.pop(part, None) for part in container["names"]}, name, withheld, asked)
            hold(made, values)
        else:
            vendor = tree["class"] in VENDOR_LAYERS
            base = getattr(sys.modules[package], name) if vendor else torch.nn.Module
            made = stand_in(base, name, values, withheld, asked)
        vars(made)["training"] = tree["training"]
        return made

"""Finds the sizes of a target's inputs that may vary, by running the original at smaller ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.targets import TensorSpec
from kernelllm_judge.target.calls import Call, as_call, seeded
from kernelllm_judge.target.cases import Described, Ranges, Sizes
from kernelllm_judge.target.errors import TargetError
from kernelllm_judge.target.work import empty_tensors, is_little_work

Maker = Callable[..., Any]


@dataclass(frozen=True)
class Varying:
    """How inputs are made, and which of their sizes may vary."""

    make: Maker
    """Takes the sizes as keywords."""
    sizes: Sizes = field(default_factory=dict)
    """The size of each dimension in the case."""
    dims: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Axes:
    """Named dimensions of one call, and the axes of its inputs that they are."""

    sizes: Sizes
    """The size of each in the call."""
    places: Mapping[tuple[str, int], str]
    """The dimension of each axis that has one, by argument and axis."""

    def only(self, names: Collection[str]) -> Axes:
        """Returns some of the dimensions."""
        places = {place: name for place, name in self.places.items() if name in names}
        return Axes({name: self.sizes[name] for name in names}, places)

    def resized(self, inputs: Described, sizes: Sizes) -> Described:
        """Returns the inputs at other sizes."""
        return {
            name: replace(value, shape=self.shape(name, value, sizes))
            if isinstance(value, TensorSpec)
            else value
            for name, value in inputs.items()
        }

    def shape(
        self, argument: str, value: TensorSpec, sizes: Mapping[str, int | str]
    ) -> tuple[int | str, ...]:
        """Returns the shape of an argument, with what ``sizes`` holds in place of dimensions."""
        return tuple(
            sizes.get(self.places.get((argument, axis), ""), size) for axis, size in enumerate(value.shape)
        )

    def cut(self, leaves: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        """Returns arguments of the call of which only the first parts are left, up to the given sizes."""
        found = dict(leaves)
        for (name, axis), dimension in self.places.items():
            if dimension in sizes:
                found[name] = found[name].narrow(axis, 0, sizes[dimension]).clone()
        return found


def leading_axes(inputs: Described) -> Axes:
    """Returns the axes that usually may vary; those of one place and size in several inputs are one dimension.

    These are the first axis, and of inputs with three or more axes the second.
    """
    shapes = {name: value.shape for name, value in inputs.items() if isinstance(value, TensorSpec)}
    most = max(map(len, shapes.values()), default=0)
    found: Sizes = {}
    places: dict[tuple[str, int], str] = {}
    for axis, name in enumerate(("batch", "seq") if most >= 3 else ("rows",)):
        size = max((int(s[axis]) for s in shapes.values() if len(s) > axis + (most >= 3)), default=0)
        if size > 1:
            found[name] = size
            places |= {(a, axis): name for a, s in shapes.items() if len(s) > axis and s[axis] == size}
    return Axes(found, places)


def parameter_sizes(make: Callable[..., Any]) -> Sizes:
    """Returns the numbers above 1 that an inputs callable takes as parameters, with their defaults."""
    defaults = {name: each.default for name, each in inspect.signature(make).parameters.items()}
    return {name: value for name, value in defaults.items() if type(value) is int and value > 1}


def free_dims(sizes: Sizes, runs: Callable[[Sizes], bool], tried: Callable[[Sizes], bool]) -> Ranges:
    """Returns the range of each dimension that may vary, up to its own size.

    Args:
        sizes: the dimensions, with their own sizes.
        runs: whether the original runs where some of them have other sizes; asked of sizes close to their own.
        tried: the same, asked of small sizes, where it can be tried on values.
    """
    found: Ranges = {}
    if not runs({}):
        return found
    for name, size in sizes.items():
        smallest = {other: low for other, (low, _) in found.items()}
        small = {other: min(4, high) for other, (_, high) in found.items()}
        if size < 2 or not runs({name: size - 1}):
            continue
        for low in (1, 2):  # a variance over a batch needs two
            if low < size and tried({**smallest, name: low}) and tried({**small, name: min(4, size)}):
                found[name] = (low, size)
                break
    return found


def varying(
    make: Maker,
    shown: Callable[[Maker, Sizes], Described],
    drawn: Callable[[Maker, Sizes], Call],
    bind: Callable[[Call], Mapping[str, Any]],
    empty: nn.Module,
    real: nn.Module,
) -> Varying:
    """Finds the sizes that may vary: parameters of the callable, or where none of them may, the leading axes.

    Args:
        make: the user's inputs callable.
        shown: describes what such a callable makes.
        drawn: calls one on the CPU.
        bind: returns arguments by name.
        empty: the original without data.
        real: the original, on the CPU.

    Raises:
        TargetError: the callable fails at its own sizes.
    """
    axes = leading_axes(shown(make, {}))

    def cut(**sizes: int) -> Any:
        call = as_call(made := make())
        return made if call is None else nested(axes.cut(bind(call), sizes))

    def tried(made: Maker, own: Sizes, on_data: bool, others: Sizes) -> bool:
        try:
            inputs = empty_tensors(shown(made, {**own, **others}))
            call = drawn(made, {**own, **others}) if on_data else None
        except TargetError:
            return False
        if call is None:
            return runs_without_data(empty, inputs)
        return is_little_work(empty, inputs) and runs(real, call)

    for made, own in ((make, parameter_sizes(make)), (cut, axes.sizes)):
        asked = partial(tried, made, own)
        if dims := free_dims(own, partial(asked, False), partial(asked, True)):
            return Varying(made, {name: own[name] for name in dims}, dims)
    return Varying(make)


def runs_without_data(module: nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether a module runs on tensors without data, given by leaf; much of what runs on data does not."""
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    meta = {name: tensor.detach().to("meta") for name, tensor in held.items()}

    def without_data(**arguments: Any) -> Any:
        return functional_call(module, meta, (), arguments)

    return runs(without_data, Call((), nested(inputs)), "meta")


def runs(module: Callable[..., Any], call: Call, device: str = "cpu") -> bool:
    """Whether a call returns."""
    try:
        with torch.no_grad(), seeded(0, device):
            module(*call.args, **call.kwargs)
    except (Exception, SystemExit):
        return False
    return True

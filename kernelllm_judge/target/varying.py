"""Finds the sizes of a target's inputs that may vary, by running the original at smaller ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
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


def free_dims(sizes: Sizes, runs: Callable[[Sizes], bool]) -> Ranges:
    """Returns the range of each dimension that may vary, up to its own size; as many vary as can together.

    Args:
        sizes: the dimensions, with their own sizes.
        runs: whether the original runs where some of them have other sizes. It is asked of small ones.
    """
    larger = [name for name, size in sizes.items() if size > 1]
    for count in range(len(larger), 0, -1):
        for names in combinations(larger, count):
            for low in (1, 2):  # a variance over a batch needs two
                some = [min(sizes[name] - 1, 3 + place) for place, name in enumerate(names)]
                others = [min(sizes[name], 4 + place) for place, name in enumerate(names)]
                tried = ([low] * count, some, others)
                if min(some) >= low and all(runs(dict(zip(names, each, strict=True))) for each in tried):
                    return {name: (low, sizes[name]) for name in names}
    return {}


def varying(
    make: Maker,
    shown: Callable[[Maker, Sizes], Described],
    drawn: Callable[[Maker, Sizes], Call],
    bind: Callable[[Call], Mapping[str, Any]],
    module: nn.Module,
) -> Varying:
    """Finds the sizes that may vary: parameters of the callable, or where none of them may, the leading axes.

    The original is tried on values. A run without them would not show that integers name rows of another input, and might
    leave tensors without values in the user's caches.

    Args:
        make: the user's inputs callable.
        shown: describes what such a callable makes.
        drawn: calls one on the CPU.
        bind: returns arguments by name.
        module: a built module on the CPU; calling it may change it.

    Raises:
        TargetError: the callable fails at its own sizes.
    """
    axes = leading_axes(shown(make, {}))

    def cut(**sizes: int) -> Any:
        call = as_call(made := make())
        return made if call is None else nested(axes.cut(bind(call), sizes))

    def runs(made: Maker, own: Sizes, others: Sizes) -> bool:
        try:
            little = is_little_work(module, empty_tensors(shown(made, {**own, **others})))
            call = drawn(made, {**own, **others}) if little else None
        except TargetError:
            return False
        return call is not None and returns(module, call)

    for made, own in ((make, parameter_sizes(make)), (cut, axes.sizes)):
        if dims := free_dims(own, partial(runs, made, own)):
            return Varying(made, {name: own[name] for name in dims}, dims)
    return Varying(make)


def runs_without_data(module: nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether a module runs on tensors without data, given by leaf; much of what runs on data does not."""
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    meta = {name: tensor.detach().to("meta") for name, tensor in held.items()}

    def without_data(**arguments: Any) -> Any:
        return functional_call(module, meta, (), arguments)

    return returns(without_data, Call((), nested(inputs)), "meta")


def returns(module: Callable[..., Any], call: Call, device: str = "cpu") -> bool:
    """Whether a call returns."""
    try:
        with torch.no_grad(), seeded(0, device):
            module(*call.args, **call.kwargs)
    except (Exception, SystemExit):
        return False
    return True
